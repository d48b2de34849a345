"""Progress records of transactions whose outcome is not known."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.replication import Progress, ProgressKey
from headrace.replication.reconcile import Decided


class Stored(NamedTuple):
    """Record of the progress topic."""

    key: ProgressKey
    progress: Progress
    time_ms: int
    offset: int


class Undecided:
    """Progress records of transactions whose outcome is not known. Not thread-safe."""

    def __init__(self) -> None:
        self._records: dict[int, dict[int, Stored]] = {}

    def __len__(self) -> int:
        return sum(len(records) for records in self._records.values())

    def add(self, partition: int, record: Stored) -> None:
        """Add a record. Call it in the order of offsets for each partition."""
        self._records.setdefault(partition, {})[record.offset] = record

    @property
    def first(self) -> dict[int, int]:
        """Offset of the first undecided record of each partition that has one."""
        return {partition: min(records) for partition, records in self._records.items() if records}

    def decide(self, partition: int, decided: Iterable[Decided]) -> Iterator[Stored]:
        """Yield the committed records in the order of their log, and remove the aborted ones."""
        records = self._records.get(partition, {})
        committed = {
            offset: one.committed for one in decided for offset in one.offsets if offset in records
        }
        for offset in sorted(committed):
            record = records.pop(offset)
            if committed[offset]:
                yield record
