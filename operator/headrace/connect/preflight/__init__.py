"""Checks of the permissions, settings and topics that a flow needs on both clusters."""
