"""The outcome of a rehearsed fail-over: what each consumer group read on both sides, counted."""

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.api import Model, TopicPartition

RecordId = tuple[str, int]
"""A record wherever it lies: topic of the source, and a hash of its value, which no other has."""
Log = Mapping[RecordId, tuple[TopicPartition, int]]
"""Where the source has each record."""


class RehearsedGroup(Model):
    """One consumer group."""

    group: str
    committed: int
    """Records of the load that it had committed on the source."""
    reread: int
    """Records that it was delivered at the target though it had committed them, or that came
    twice."""
    skipped: int
    """Records of the target that it had not committed, and was not delivered."""


class Rehearsed(Model):
    """All groups of the run; or why there was no fail-over."""

    groups: tuple[RehearsedGroup, ...] = ()
    seconds: float | None = None
    """What the fail-over took, from the command to its end."""
    error: str | None = None
    """Absent: the fail-over was made, and all groups went on."""


def count_group(
    group: str,
    source: Log,
    target: Iterable[RecordId],
    committed: Mapping[TopicPartition, int],
    delivered: Iterable[RecordId],
) -> RehearsedGroup:
    """``committed`` is the next offset of each partition of the source; ``target`` are the records
    that are there, ``delivered`` those that the group read there. Others' records do not count."""
    before = {
        record for record, (at, offset) in source.items() if offset < committed.get(at, offset)
    }
    due = (set(target) & source.keys()) - before
    times = Counter(record for record in delivered if record in source)
    return RehearsedGroup(
        group=group,
        committed=len(before),
        reread=sum(times.values()) - len(due & times.keys()),
        skipped=len(due - times.keys()),
    )
