"""Parts of sentences for users."""

from collections.abc import Sequence


def first_few(items: Sequence[str], most: int, others: str = "more") -> str:
    """Return at most ``most`` items and the number of the others, such as ``a, b and 3 more``."""
    rest = len(items) - most
    return ", ".join(items[:most]) + (f" and {rest} {others}" if rest > 0 else "")
