"""Takeover from an earlier owner: fence it, read its progress, and find where to resume."""
