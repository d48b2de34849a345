"""The number of examples of a slow property test."""

from hypothesis import settings


def one_in(number: int) -> settings:
    """Return settings with one of ``number`` examples of the profile in use, and two at least."""
    return settings(max_examples=max(2, settings().max_examples // number))
