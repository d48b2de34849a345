"""Fail-over and fail-back of a flow, and import from and export to MirrorMaker 2."""
