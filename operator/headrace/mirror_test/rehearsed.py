"""The outcome of a rehearsed fail-over: what each consumer group read on both sides, counted.

In a cluster ``rehearsal.json`` is the plan, too: the groups, and the error that stays the outcome
of a rehearsal that nobody reports.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.api import Model, Rehearsal, TopicPartition
from headrace.mirror_test import documents

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
    not_undone: str | None = None
    """Why the flow is still failed over; absent: it is not."""


def group_names(run: str, asked: Rehearsal) -> list[str]:
    """Of a run's consumer groups."""
    return [f"headrace-rehearsal-{run}-{number}" for number in range(asked.groups)]


def build_rehearsal(run: str, asked: Rehearsal, unreported: str) -> str:
    """The document of a plan; ``unreported`` is the error if nobody reports."""
    groups = tuple(
        RehearsedGroup(group=name, committed=0, reread=0, skipped=0)
        for name in group_names(run, asked)
    )
    return Rehearsed(groups=groups, error=unreported).model_dump_json(by_alias=True, indent=1)


def read_rehearsal(text: str, name: str) -> Rehearsed:
    """A plan from its document; see ``documents.read_plan``."""
    return documents.read_plan(text, name, Rehearsed)


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
