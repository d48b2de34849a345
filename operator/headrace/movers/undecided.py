"""Progress that was written in transactions, until it is known how they ended."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.replication import Progress, ProgressKey
from headrace.replication.reconcile import Decided


class Stored(NamedTuple):
    """A record of the progress topic."""

    key: ProgressKey
    progress: Progress
    time_ms: int
    offset: int


class Undecided:
    """Undecided records of all partitions of the topic. Not thread-safe."""

    def __init__(self) -> None:
        self._records: dict[int, dict[int, Stored]] = {}

    def __len__(self) -> int:
        return sum(len(records) for records in self._records.values())

    def add(self, partition: int, record: Stored) -> None:
        """Add a record; offsets of a partition ascend."""
        self._records.setdefault(partition, {})[record.offset] = record

    @property
    def first(self) -> dict[int, int]:
        """The offset of the first of each partition that has any."""
        return {partition: min(records) for partition, records in self._records.items() if records}

    def decide(self, partition: int, decided: Iterable[Decided]) -> Iterator[Stored]:
        """Yield the records that were committed, in the order of their log; forget the others."""
        records = self._records.get(partition, {})
        committed = {
            offset: one.committed for one in decided for offset in one.offsets if offset in records
        }
        for offset in sorted(committed):
            record = records.pop(offset)
            if committed[offset]:
                yield record
