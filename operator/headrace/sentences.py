"""Parts of sentences for users."""

from collections.abc import Sequence


def first_few(items: Sequence[str], limit: int, others: str = "more") -> str:
    """Return at most ``limit`` items and the number of the others, such as ``a, b and 3 more``."""
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} {others}" if rest > 0 else "")
