"""Fetches that expire: their partitions are fetched apart from the others of their broker."""

import itertools
from collections.abc import Collection

from headrace.api import TopicPartition

TOGETHER = 0
"""Group of all partitions of a broker whose fetches are answered in time."""
MARGIN_S = 5.0
"""Time beyond ``fetch.max.wait.ms`` for the first answer. A broker that reads its own disk answers
in less than a second, and a line that is only slow delivers a part of the answer by then."""
LONGEST_S = 300.0
"""Longest time for an answer. Brokers with tiered storage take minutes for a first fetch."""
_GROWTH = 3.0
"""Growth of the time after each expiry: 5 minutes are allowed after 72 s without an answer."""
_PARTS = 8
"""Groups that one group is split into: of 1,000 partitions, one is alone after 4 expiries."""
_MOST_GROUPS = 16
"""Groups of a reader. Each has a connection of its own."""


class Apart:
    """Groups of one reader's partitions, and the time that the fetches of each group may take.

    It is unknown which partition of a request delays the answer. The request's partitions are
    therefore split until the slow one is alone. A group that is answered in time joins the others.
    """

    def __init__(self, first_s: float) -> None:
        """Allow ``first_s`` for a fetch of partitions that are not slow."""
        self._first_s = first_s
        self._groups: dict[TopicPartition, int] = {}
        self._timeouts_s: dict[int, float] = {}
        self._numbers = itertools.count(TOGETHER + 1)

    def group(self, at: TopicPartition) -> int:
        """Return the group of a partition."""
        return self._groups.get(at, TOGETHER)

    def timeout_s(self, group: int) -> float:
        """Return the time for an answer to a fetch of this group."""
        return self._timeouts_s.get(group, self._first_s)

    def expired(self, group: int, partitions: Collection[TopicPartition]) -> None:
        """Split a group whose request expired; give a single partition more time."""
        waited_s = self.timeout_s(group)
        self._end(group)
        parts = max(1, min(len(partitions), _PARTS, _MOST_GROUPS - len(self._timeouts_s)))
        timeout_s = waited_s if parts > 1 and len(partitions) > parts else waited_s * _GROWTH
        ordered = sorted(partitions)
        for first in range(parts):
            number = next(self._numbers)
            self._timeouts_s[number] = min(timeout_s, LONGEST_S)
            self._groups |= dict.fromkeys(ordered[first::parts], number)

    def answered(self, group: int, took_s: float) -> bool:
        """Return True if the group was answered in time and has joined the others."""
        if group == TOGETHER or took_s >= self._first_s:
            return False
        self._end(group)
        return True

    def forget(self, at: TopicPartition) -> None:
        """Forget a partition that is no longer fetched."""
        group = self._groups.pop(at, TOGETHER)
        if group not in self._groups.values():
            self._timeouts_s.pop(group, None)

    def _end(self, group: int) -> None:
        self._timeouts_s.pop(group, None)
        self._groups = {at: other for at, other in self._groups.items() if other != group}
