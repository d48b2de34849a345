"""Names of topics that headrace itself writes."""

from typing import Final

HEARTBEATS: Final = "heartbeats"
"""Replicated whatever the filter says, or nobody sees who is upstream."""
