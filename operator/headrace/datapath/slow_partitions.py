"""Groups of slow partitions, which are fetched separately from the others of their broker."""

import itertools
from collections.abc import Collection

from headrace.api import TopicPartition

TOGETHER = 0
"""Group of all partitions of a broker whose fetches are answered in time."""
MARGIN_S = 5.0
"""Time in addition to ``fetch.max.wait.ms`` for the first answer, in seconds. A broker that reads
its own disk answers in less than a second. A slow network delivers a part of the answer by then."""
MAX_TIMEOUT_S = 300.0
"""Maximum time for an answer, in seconds. Brokers with tiered storage take minutes for a first
fetch."""
_GROWTH = 3.0
"""Factor by which the time grows after each expired request. After 72 s without an answer, 5
minutes are allowed."""
_PARTS = 8
"""Number of groups into which a group is split. A slow partition among 1,000 is alone after 4
expired requests."""
_MAX_GROUPS = 16
"""Maximum number of groups of a reader. Each group has its own connection."""


class Apart:
    """Groups of one reader's partitions, and the timeout of each group's fetches.

    If a request expires, it is unknown which partition delays the answer. The request's partitions
    are therefore split until the slow one is alone. A group that is answered in time joins the
    others again.
    """

    def __init__(self, first_s: float) -> None:
        """Create the object; ``first_s`` is the timeout of partitions that are not slow."""
        self._first_s = first_s
        self._groups: dict[TopicPartition, int] = {}
        self._timeouts_s: dict[int, float] = {}
        self._numbers = itertools.count(TOGETHER + 1)

    def group(self, at: TopicPartition) -> int:
        return self._groups.get(at, TOGETHER)

    def timeout_s(self, group: int) -> float:
        """Return the timeout of a fetch of this group, in seconds."""
        return self._timeouts_s.get(group, self._first_s)

    def expired(self, group: int, partitions: Collection[TopicPartition]) -> None:
        """Split a group whose request expired, or give a single partition more time."""
        waited_s = self.timeout_s(group)
        self._end(group)
        parts = max(1, min(len(partitions), _PARTS, _MAX_GROUPS - len(self._timeouts_s)))
        timeout_s = waited_s if parts > 1 and len(partitions) > parts else waited_s * _GROWTH
        ordered = sorted(partitions)
        for first in range(parts):
            number = next(self._numbers)
            self._timeouts_s[number] = min(timeout_s, MAX_TIMEOUT_S)
            self._groups |= dict.fromkeys(ordered[first::parts], number)

    def answered(self, group: int, took_s: float) -> bool:
        """Record an answer; return whether the group was answered in time and joined the others."""
        if group == TOGETHER or took_s >= self._first_s:
            return False
        self._end(group)
        return True

    def forget(self, at: TopicPartition) -> None:
        group = self._groups.pop(at, TOGETHER)
        if group not in self._groups.values():
            self._timeouts_s.pop(group, None)

    def _end(self, group: int) -> None:
        self._timeouts_s.pop(group, None)
        self._groups = {at: other for at, other in self._groups.items() if other != group}
