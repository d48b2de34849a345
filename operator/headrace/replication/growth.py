"""How fast a partition grows, from its end offsets at several polls."""

from dataclasses import dataclass

_HALF_LIFE_S = 60.0
"""After this long a change counts by half: as long as moves for balance are apart, so that none of
them follows a short burst."""
_KNOWN_AFTER_S = 5.0
"""A rate over a shorter time says little; two polls are further apart than this by default."""


@dataclass(frozen=True)
class Growth:
    """What was seen of one partition; times are monotonic seconds."""

    end_offset: int
    first_seen_s: float
    last_seen_s: float
    smoothed: float = 0.0
    """Records/s."""

    @property
    def records_per_s(self) -> float | None:
        """None until the partition was watched for a while."""
        known = self.last_seen_s - self.first_seen_s >= _KNOWN_AFTER_S
        return self.smoothed if known else None


def observe(before: Growth | None, end_offset: int, now_s: float) -> Growth:
    """The next poll. A partition that shrank was created again: its history is dropped."""
    if before is None or end_offset < before.end_offset:
        return Growth(end_offset, now_s, now_s)
    elapsed_s = now_s - before.last_seen_s
    if elapsed_s <= 0:
        return before
    rate = (end_offset - before.end_offset) / elapsed_s
    # The mean of all that was seen; when that is much, of late.
    share = max(elapsed_s / (now_s - before.first_seen_s), 1 - 0.5 ** (elapsed_s / _HALF_LIFE_S))
    smoothed = before.smoothed + share * (rate - before.smoothed)
    return Growth(end_offset, before.first_seen_s, now_s, smoothed)
