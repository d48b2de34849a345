"""Reads a flow's topic ids and offsets on both clusters, and which groups have members.

All functions wait for brokers. A partition without a leader on one cluster is reported and does not
delay other partitions.
"""

from collections.abc import Callable, Collection, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import SHARE, Admin, Position, Topic
from headrace.replication import Progress


def groups_in_use(admin: Admin) -> dict[str, frozenset[str]]:
    """Return the groups with members, and the topics for which each has offsets.

    Groups of all kinds and in all states count.

    Raises:
        HeadraceError: The cluster, or the offsets of a group, could not be read.
    """
    members = admin.groups_with_members()
    share = {group for group, kind in members.items() if kind == SHARE}
    committed, refused = admin.committed(members.keys() - share)
    found = {group: frozenset(at.topic for at in those) for group, those in committed.items()}
    if share:
        starts, unread = admin.share_starts(share)
        found |= {group: frozenset(at.topic for at in those) for group, those in starts.items()}
        refused |= unread
    for error in refused.values():
        raise error
    return found


T = TypeVar("T")

Failures = Mapping[TopicPartition, HeadraceError]
"""Errors of partitions whose state is unknown, by source partition. The target may be the cause."""
Offsets = dict[TopicPartition, int]
TopicIds = dict[str, tuple[str, str]]
"""Topic ids on the source and on the target, by source topic; "" if the topic is missing."""


def describe_topics(
    context: FlowContext, partitions: Set[TopicPartition]
) -> tuple[TopicIds, Failures]:
    """Return topic ids, and errors of the partitions without a leader.

    Raises:
        Retriable: A topic is missing on one cluster.
    """
    topics = sorted({at.topic for at in partitions})
    source, target = _described(context, topics)
    ids = {}
    for topic in topics:
        target_topic = context.policy.target_topic(topic)
        if topic not in source:
            raise Retriable(f"topic {topic} is not on {context.source.name} (any more)")
        if target_topic not in target:
            raise Retriable(f"topic {target_topic} is not on {context.target.name} (yet)")
        ids[topic] = source[topic].topic_id, target[target_topic].topic_id
    leaderless = {}
    for at in sorted(partitions):
        there = target_partition(context, at)
        if at.partition in source[at.topic].leaderless:
            leaderless[at] = _leaderless(at, context.source.name)
        elif at.partition in target[there.topic].leaderless:
            leaderless[at] = _leaderless(there, context.target.name)
    return ids, leaderless


def known_topic_ids(context: FlowContext, topics: Set[str]) -> TopicIds:
    """Return the topic ids, which change when a topic is deleted and created again."""
    source, target = _described(context, topics)
    names = {topic: context.policy.target_topic(topic) for topic in topics}
    return {topic: (_id(source.get(topic)), _id(target.get(name))) for topic, name in names.items()}


def source_topic_ids(context: FlowContext, topics: Set[str]) -> TopicIds:
    """Return the topic ids of the source, with "" for the target."""
    source = context.source.describe(topics)
    return {topic: (_id(source.get(topic)), "") for topic in topics}


class KnownOffsets(NamedTuple):
    """Offsets of partitions that responded on both clusters, by source partition."""

    starts: Offsets
    ends: Offsets
    stable_ends: Offsets
    target_ends: Offsets
    target_epoch_ends: Offsets
    """Ends of the requested leader epochs that the target's leader knows."""
    failed: Failures


def target_epochs(stored: Mapping[TopicPartition, Progress]) -> dict[TopicPartition, int]:
    """Return the leader epochs at which the target's ends were last confirmed."""
    return {
        at: progress.target_seen.leader_epoch
        for at, progress in stored.items()
        if progress.target_seen is not None
    }


def find_offsets(
    context: FlowContext,
    partitions: Set[TopicPartition],
    epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> KnownOffsets:
    """Return the offsets of these partitions, which are requested at the same time.

    ``epochs`` contains leader epochs of the target whose ends are requested.
    """
    targets = {target_partition(context, at): at for at in partitions}
    source, target = context.source, context.target
    starts, ends, stable_ends, (target_ends, target_failed), epoch_ends = _together(
        lambda: source.found_offsets(partitions, Position.EARLIEST),
        lambda: source.found_offsets(partitions, Position.LATEST),
        lambda: source.found_offsets(partitions, Position.LAST_STABLE),
        lambda: target.found_offsets(targets, Position.LATEST),
        lambda: _epoch_ends(context, epochs),
    )
    failed: dict[TopicPartition, HeadraceError] = {
        targets[at]: error for at, error in target_failed.items()
    }
    for _, of_source in (starts, ends, stable_ends):
        failed |= of_source
    failed |= epoch_ends[1]
    by_source = {targets[at]: end for at, end in target_ends.items()}
    return KnownOffsets(starts[0], ends[0], stable_ends[0], by_source, epoch_ends[0], failed)


def _epoch_ends(
    context: FlowContext, epochs: Mapping[TopicPartition, int]
) -> tuple[Offsets, Failures]:
    if not epochs or (fencing := context.mover.fencing) is None:
        return {}, {}
    sources = {target_partition(context, at): at for at in epochs}
    answers = fencing.epoch_ends({there: epochs[at] for there, at in sources.items()})
    found: Offsets = {}
    failed: dict[TopicPartition, HeadraceError] = {}
    for there, answer in answers.items():
        if isinstance(answer, Retriable):
            failed[sources[there]] = answer
        else:
            found[sources[there]] = answer
    return found, failed


def target_partition(context: FlowContext, at: TopicPartition) -> TopicPartition:
    """Return the partition of the target to which a partition of the source is copied."""
    return TopicPartition(context.policy.target_topic(at.topic), at.partition)


def _described(
    context: FlowContext, topics: Collection[str]
) -> tuple[dict[str, Topic], dict[str, Topic]]:
    names = [context.policy.target_topic(topic) for topic in topics]
    source, target = _together(
        lambda: context.source.describe(topics), lambda: context.target.describe(names)
    )
    return source, target


def _id(topic: Topic | None) -> str:
    return topic.topic_id if topic else ""


def _leaderless(at: TopicPartition, cluster: str) -> Retriable:
    return Retriable(f"{at} on {cluster} has no leader: it waits until a replica of it is back")


def _together(*asks: Callable[[], Any]) -> list[Any]:
    """Return the results of calls that run at the same time, because a takeover must be fast."""
    with ThreadPoolExecutor(len(asks)) as pool:
        return [answer.result() for answer in [pool.submit(ask) for ask in asks]]
