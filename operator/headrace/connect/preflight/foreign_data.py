"""Copies that hold records which no progress speaks of."""

from collections.abc import Iterator, Mapping, Set

from headrace.api import TopicPartition
from headrace.api.flow import Location
from headrace.connect.preflight.findings import Finding, Outcome, named
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.kafka import Position

_FOREIGN = (
    "holds records that this flow has no progress of, of somebody else or of another tool: the "
    "source's are appended behind them; give the copy another name (spec.replicationPolicy), or "
    "delete it"
)


def check_foreign_data(
    context: FlowContext, topics: Mapping[str, int], existing: Set[str]
) -> Iterator[Finding]:
    """``topics`` of the source, with their partitions; ``existing`` are copies. Needs the right to
    read progress."""
    of = {
        there: at
        for topic, count in topics.items()
        for number in range(count)
        if (there := target_partition(context, at := TopicPartition(topic, number))).topic
        in existing
    }
    starts = context.target.known_ends(of, Position.EARLIEST)
    ends = context.target.known_ends(of)
    filled = {at for at, end in ends.items() if end > starts.get(at, end)}
    subject, what = named("topic", existing), "data"
    try:
        known = _with_progress(context, {of[at] for at in filled})
    except HeadraceError as error:
        yield Finding(Location.TARGET, subject, what, Outcome.WARNING, f"not compared: {error}")
        return
    if foreign := {at.topic for at in filled if of[at] not in known}:
        subject = named("topic", foreign)
        yield Finding(Location.TARGET, subject, what, Outcome.WARNING, _FOREIGN)
    elif existing:
        yield Finding(Location.TARGET, subject, what, Outcome.OK)


def _with_progress(context: FlowContext, partitions: Set[TopicPartition]) -> set[TopicPartition]:
    progress = context.progress
    if not partitions or not progress.exists():
        return set()  # to follow it would make it
    progress.start()
    progress.read_to_end()
    now_ms = context.now_ms
    return {at for at in partitions if progress.get(context.progress_key(at), now_ms) is not None}
