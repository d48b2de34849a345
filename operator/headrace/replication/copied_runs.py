"""Which source offset became which target offset, of what a lane's partition has had acknowledged.

A run is records whose offsets ascend by one on both sides: what is copied is one run until the
source has a hole (compaction, a transaction's marker, a record that is left out).
"""

from typing import NamedTuple, TypeVar

T = TypeVar("T")

MOST_RUNS = 256
"""That are kept until they are taken, four times a second. Beyond, every second one is forgotten:
what lies between two that are kept is then not known."""


def few_enough(ascending: list[T], most: int) -> list[T]:
    """Shorten the list to so many, every second one at a time; the first and the last one stay."""
    while len(ascending) > most:
        del ascending[1:-1:2]
    return ascending


class Run(NamedTuple):
    """``records`` records from ``source`` on, which are on the target from ``target`` on."""

    source: int
    target: int
    records: int
    stretch: int
    """Runs with the same number have nothing but each other, and what was forgotten of this lane,
    between them on the target: with equal distances of offsets there are no holes either."""

    @property
    def last(self) -> tuple[int, int]:
        """Source and target offset of the last record."""
        return self.source + self.records - 1, self.target + self.records - 1

    def continues(self, last: tuple[int, int]) -> bool:
        """Whether its first record is the very next one on both sides."""
        return (self.source - 1, self.target - 1) == last

    def without(self, first: int) -> "Run":
        """What is behind its first so many records."""
        source, target = self.source + first, self.target + first
        return Run(source, target, self.records - first, self.stretch)


class CopiedRuns:
    """Of one partition, as long as it is open. Calls come in the order of offsets."""

    __slots__ = ("_runs", "_stretch", "records", "source", "target")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._stretch = 0
        self.source = self.target = self.records = 0
        """The run that continues. It has no records if all of it was taken. The ledger extends it
        without a call of ``add`` for each batch."""

    def add(self, source: int, target: int, records: int = 1) -> None:
        """The target has acknowledged these."""
        count = self.records
        if source == self.source + count and target == self.target + count:
            self.records = count + records
            return
        if count:
            self._close()
        # Before the first one there is none: the number that it gets does not matter.
        self._stretch += target != self.target + count
        self.source, self.target, self.records = source, target, records

    def take(self) -> list[Run]:
        """What came since the last call; a run that goes on comes in pieces."""
        if self.records:
            self._close()
            self.source, self.target = self.source + self.records, self.target + self.records
            self.records = 0
        runs, self._runs = self._runs, []
        return runs

    def _close(self) -> None:
        self._runs.append(Run(self.source, self.target, self.records, self._stretch))
        few_enough(self._runs, MOST_RUNS)
