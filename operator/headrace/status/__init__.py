"""Judges a flow by what its units report. Pure."""
