"""Permissions, settings and topics that a flow needs on both clusters, and what is missing."""
