"""Where a task goes on: progress, checked against what both clusters hold.

Everything here waits for brokers: it runs in a pool, not on the loop that moves data.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from headrace.api import StartFrom, TopicPartition
from headrace.connect.context import FlowContext
from headrace.connect.ownership import Ownership, OwnershipLost
from headrace.errors import Fatal, Retriable
from headrace.kafka import Position, Topic
from headrace.replication import Progress, ProgressKey

T = TypeVar("T")
Offsets = dict[TopicPartition, int]


class DataLoss(Fatal):
    """Records are gone that were not copied, or copies are gone; the message says which."""


class Start(NamedTuple):
    """Where one partition goes on."""

    source_offset: int
    target_offset: int
    """What the target acknowledged before; 0 when nothing."""
    leader_epoch: int
    source_topic_id: str
    target_topic_id: str
    end: int
    """The last stable offset of the source when this was read."""


Starts = dict[TopicPartition, Start]


def epoch_floor(context: FlowContext, partitions: Iterable[TopicPartition]) -> int:
    """The highest epoch in the progress of these partitions, as far as it is known.

    Read to its end the first time only: ``restore`` does so in any case, and claims again where it
    finds a higher one.
    """
    context.progress.start()
    if not context.progress.was_read:
        context.progress.read_to_end()
    stored = (context.progress.get(context.progress_key(at)) for at in partitions)
    return max((progress.epoch for progress in stored if progress), default=0)


def warm_up(context: FlowContext, partitions: Set[TopicPartition]) -> None:
    """Send the requests of a take-over, and write nothing: its connections are warm then."""
    epoch_floor(context, partitions)
    _topic_ids(context, {at.topic for at in partitions})
    _offsets(context, partitions, partitions)


def restore(
    context: FlowContext,
    ownership: Ownership,
    partitions: Set[TopicPartition],
    settled: Mapping[TopicPartition, Start],
) -> Starts:
    """Find where these partitions go on, and write the claim to progress: old positions, new epoch.

    What this instance has ``settled`` counts, unless what is stored names another owner.

    Behind the claim of the unit. (The fence at the broker has its place before progress is read;
    the record mover has none, so it resumes from the stored positions.) Raises ``DataLoss`` when
    what is stored does not fit what the clusters hold, ``Retriable`` while brokers do not answer.
    """
    with ThreadPoolExecutor(1) as restore_pool:
        reading = restore_pool.submit(context.progress.read_to_end)
        ids = _topic_ids(context, {at.topic for at in partitions})
        reading.result()
    stored = _stored(context, partitions, records(context, ownership, settled))
    # After progress: an owner that does not know yet that it is none may go on meanwhile.
    offsets = _offsets(context, partitions, stored.keys())
    _check(context, stored, ids, offsets)
    positions = {at: progress.source_offset for at, progress in stored.items()}
    positions |= _first_positions(context, partitions - stored.keys())
    starts = {
        at: Start(
            position,
            stored[at].target_offset if at in stored else 0,
            stored[at].leader_epoch if at in stored else -1,
            *ids[at.topic],
            offsets.stable_ends[at],
        )
        for at, position in positions.items()
    }
    # A partition that comes from another task may carry a higher epoch than this unit's claim.
    owner = ownership.signature
    highest = max((p.epoch for p in stored.values() if p.owner != owner), default=0)
    if highest >= ownership.epoch:
        ownership.claim(above=highest)
    context.progress.write(records(context, ownership, starts))
    return starts


def _stored(
    context: FlowContext,
    partitions: Set[TopicPartition],
    settled: Mapping[ProgressKey, Progress],
) -> dict[TopicPartition, Progress]:
    """Progress of those partitions that have some; what is settled in place of the same owner's."""
    stored = {}
    for at in partitions:
        key = context.progress_key(at)
        if (progress := context.progress.get(key)) is not None:
            mine = settled.get(key, progress)
            same_owner = (mine.owner, mine.epoch) == (progress.owner, progress.epoch)
            stored[at] = mine if same_owner else progress
    return stored


def records(
    context: FlowContext,
    ownership: Ownership,
    starts: Mapping[TopicPartition, Start],
    target_losses: Mapping[TopicPartition, str] = MappingProxyType({}),
) -> dict[ProgressKey, Progress]:
    """What is to be stored of these partitions, under this ownership: ``OwnershipLost`` after its
    end, so that what hung in a pool stores nothing behind the next owner."""
    if ownership.released:
        raise OwnershipLost(f"{ownership.name} was released")
    owner = ownership.signature
    return {
        context.progress_key(at): Progress(
            source_topic_id=start.source_topic_id,
            source_offset=start.source_offset,
            leader_epoch=start.leader_epoch,
            target_topic_id=start.target_topic_id,
            target_offset=start.target_offset,
            epoch=ownership.epoch,
            filter_generation=0,
            owner=owner,
            target_loss=target_losses.get(at, ""),
        )
        for at, start in starts.items()
    }


def check_source_range(
    context: FlowContext, at: TopicPartition, position: int, start: int, end: int
) -> None:
    """Raise ``DataLoss`` when ``position`` does not lie in what the source holds."""
    where = f"{at} on {context.source.name}"
    if position < start:
        raise DataLoss(
            f"{where} begins at offset {start}, the next to copy was {position}: offsets "
            f"{position} to {start - 1} are lost (retention was shorter than the flow's pause)"
        )
    if position > end:
        raise DataLoss(
            f"{where} ends at offset {end}, but offsets up to {position - 1} were copied: the "
            "source lost them and may write others in their place (an unclean election)"
        )


class _Offsets(NamedTuple):
    """What both clusters hold; of the target, by the partition of the source."""

    starts: Offsets
    ends: Offsets
    stable_ends: Offsets
    target_ends: Offsets


def _offsets(
    context: FlowContext, partitions: Set[TopicPartition], copied: Set[TopicPartition]
) -> _Offsets:
    """On the target, of those that were copied before."""
    targets = {
        TopicPartition(context.policy.target_topic(at.topic), at.partition): at for at in copied
    }
    source, target = context.source, context.target
    starts, ends, stable_ends, target_ends = _together(
        lambda: source.offsets(partitions, Position.EARLIEST),
        lambda: source.offsets(partitions, Position.LATEST),
        lambda: source.offsets(partitions, Position.LAST_STABLE),
        lambda: target.offsets(targets, Position.LATEST),
    )
    by_source = {targets[at]: end for at, end in target_ends.items()}
    return _Offsets(starts, ends, stable_ends, by_source)


def _together(*asks: Callable[[], T]) -> list[T]:
    """All answers, requested at the same time: a take-over has no time for one after the other."""
    with ThreadPoolExecutor(len(asks)) as pool:
        return [answer.result() for answer in [pool.submit(ask) for ask in asks]]


def _topic_ids(context: FlowContext, topics: Set[str]) -> dict[str, tuple[str, str]]:
    """Ids on both sides; ``Retriable`` when a topic is absent on one."""
    ids = known_topic_ids(context, topics)
    for topic in sorted(topics):
        on_source, on_target = ids[topic]
        if not on_source:
            raise Retriable(f"topic {topic} is not on {context.source.name} (any more)")
        if not on_target:
            target_topic = context.policy.target_topic(topic)
            raise Retriable(f"topic {target_topic} is not on {context.target.name} (yet)")
    return ids


def known_topic_ids(context: FlowContext, topics: Set[str]) -> dict[str, tuple[str, str]]:
    """Ids on both sides: they change when a topic is deleted and created again; "" if absent."""
    target_names = {topic: context.policy.target_topic(topic) for topic in topics}
    source, target = _together(
        lambda: context.source.describe(topics),
        lambda: context.target.describe(target_names.values()),
    )
    return {
        topic: (_id(source.get(topic)), _id(target.get(target_topic)))
        for topic, target_topic in target_names.items()
    }


def _id(topic: Topic | None) -> str:
    return topic.topic_id if topic else ""


def _check(
    context: FlowContext,
    stored: Mapping[TopicPartition, Progress],
    ids: Mapping[str, tuple[str, str]],
    offsets: _Offsets,
) -> None:
    for at, progress in sorted(stored.items()):
        _check_ids(context, at, progress, *ids[at.topic])
        check_source_range(
            context, at, progress.source_offset, offsets.starts[at], offsets.ends[at]
        )
        if progress.target_loss:
            raise DataLoss(progress.target_loss)
        end = offsets.target_ends[at]
        if end < progress.target_offset:
            raise lost_on_target(context, at, end, progress.target_offset)


def lost_on_target(
    context: FlowContext, at: TopicPartition, offset: int, expected: int
) -> DataLoss:
    """``offset``: the first that is known to be gone; ``expected``: behind the last."""
    target = TopicPartition(context.policy.target_topic(at.topic), at.partition)
    return DataLoss(
        f"{target} on {context.target.name} went on at offset {offset}, but all below {expected} "
        f"were acknowledged: offsets {offset} to {expected - 1} are gone from the target (an "
        "unclean election, or the topic was truncated)"
    )


def _check_ids(
    context: FlowContext, at: TopicPartition, progress: Progress, source_id: str, target_id: str
) -> None:
    if progress.source_topic_id != source_id:
        raise created_again_on_source(context, at, progress.source_offset)
    if progress.target_topic_id != target_id:
        raise created_again_on_target(context, at, progress.source_offset)


_REMEDY = (
    "to copy it from its beginning under another name, or to go on with what is there, "
    "is yours to decide: delete the target topic and its progress, or restore the topic"
)


def created_again_on_source(context: FlowContext, at: TopicPartition, position: int) -> DataLoss:
    """``position``: the last that is known to be of the old topic."""
    return DataLoss(
        f"topic {at.topic} on {context.source.name} was deleted and created again: what its old "
        f"partition {at.partition} held from offset {position} on is lost, as far as it was not "
        f"copied before that was noticed; {_REMEDY}"
    )


def created_again_on_target(context: FlowContext, at: TopicPartition, position: int) -> DataLoss:
    """``position``: the last whose copies are known to be of the old topic."""
    return DataLoss(
        f"topic {context.policy.target_topic(at.topic)} on {context.target.name} was deleted and "
        f"created again: the copies of {at} below source offset {position} are gone; {_REMEDY}"
    )


def _first_positions(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where partitions without progress begin.

    ``Latest`` means: records since the flow was made, by their timestamps. A topic that is made
    later is copied from its beginning, unless it has records with older timestamps: whether those
    came after the flow cannot be told, as Kafka keeps no time of a topic's creation.
    """
    source, spec = context.source, context.spec
    if not partitions:
        return {}
    if spec.start_from is StartFrom.EARLIEST:
        return source.offsets(partitions, Position.EARLIEST)
    # Ends first: a record that comes between the two requests is then found, or is above the end.
    ends = source.offsets(partitions, Position.LATEST)
    moment = spec.start_timestamp or context.flow.metadata.creation_timestamp
    found = source.offsets_at(partitions, int(moment.timestamp() * 1000)) if moment else {}
    return {at: ends[at] if found.get(at, -1) < 0 else found[at] for at in partitions}
