"""The writers of one partition's copies, by the target's log: never two owners at a time. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from soak.accounts import Stored

Identity = tuple[int, int]
"""Producer id and epoch."""


class Written(NamedTuple):
    """A batch with records; markers are left out."""

    base_offset: int
    records: int
    writer: Identity
    base_sequence: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records


def disputes(name: str, log: Sequence[Written], progress: Sequence[Stored]) -> list[str]:
    """Return contradictions to the rule that one owner appends at a time.

    Each batch is expected once, and without a gap.
    """
    return [*_of_runs(name, log), *_of_acknowledgements(name, log, progress)]


def _of_runs(name: str, log: Sequence[Written]) -> Iterator[str]:
    """Check that each identity wrote one run, starting at sequence 0.

    After the first batch of the next one, no batch of an earlier one was accepted.
    """
    ended: set[Identity] = set()
    before: Written | None = None
    for batch in log:
        where = (
            f"{name}: the batch at target offset {batch.base_offset}, of producer {batch.writer}"
        )
        if before is not None and before.writer == batch.writer:
            expected = (before.base_sequence + before.records) % (1 << 31)
        else:
            expected = 0
            if before is not None:
                ended.add(before.writer)
            if batch.writer in ended:
                yield f"{where}, came behind one of another producer that had followed it"
        if batch.base_sequence != expected and batch.writer not in ended:
            yield f"{where}, has sequence {batch.base_sequence} instead of {expected}"
        before = batch


def _of_acknowledgements(
    name: str, log: Sequence[Written], progress: Iterable[Stored]
) -> Iterator[str]:
    """Check that each owner itself appended the records that it stored as acknowledged."""
    for before, stored in pairwise(progress):
        same = (before.task, before.driver, before.epoch) == (
            stored.task,
            stored.driver,
            stored.epoch,
        )
        if not same or before.fencing or stored.writer is None:
            continue  # of a take-over: what others had appended is looked at then
        own = {before.writer, stored.writer}
        for batch in log:
            acknowledged = before.target_offset <= batch.base_offset < stored.target_offset
            if acknowledged and batch.writer not in own:
                yield (
                    f"{name}: {stored.driver} stored target offset {batch.base_offset} as "
                    f"acknowledged, which producer {batch.writer} appended, and not {stored.writer}"
                )
