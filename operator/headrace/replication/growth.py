"""How fast a partition grows, from its end offsets at two looks."""

from dataclasses import dataclass

_HALF_LIFE_S = 60.0
"""After this long a change counts by half: as long as moves for balance are apart, so that none of
them follows a short burst."""


@dataclass(frozen=True)
class Growth:
    """What was seen of one partition."""

    end_offset: int
    seen_s: float
    """On a monotonic clock."""
    records_per_s: float | None = None
    """Smoothed; None until there were two looks."""


def observe(before: Growth | None, end_offset: int, now_s: float) -> Growth:
    """The next look. A partition that shrank was made anew: what was known of it is forgotten."""
    if before is None or end_offset < before.end_offset:
        return Growth(end_offset, now_s)
    elapsed_s = now_s - before.seen_s
    if elapsed_s <= 0:
        return before
    rate = (end_offset - before.end_offset) / elapsed_s
    if before.records_per_s is not None:
        remembered = 0.5 ** (elapsed_s / _HALF_LIFE_S)
        rate += (before.records_per_s - rate) * remembered
    return Growth(end_offset, now_s, rate)
