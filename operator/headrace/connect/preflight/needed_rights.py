"""Permissions that a flow needs on both clusters, as ``docs/permissions.md`` lists them. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from headrace.api import HEARTBEATS, acls_topic, made_topics_topic
from headrace.api.flow import Location, TopicDeletionMode
from headrace.connect.runtime.context import FlowContext
from headrace.kafka import Operation

TRANSACTIONAL_IDS = "headrace-"
"""What transactional ids begin with."""
THE_CLUSTER = "kafka-cluster"
"""Kafka's name of the one resource of that kind."""

_MAKE = (Operation.CREATE, Operation.WRITE)
_KEEP = (Operation.CREATE, Operation.READ, Operation.WRITE)


class Resource(StrEnum):
    """What an ACL is about, as an option of kafka-acls.sh."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True)
class Need:
    """One operation on some resources of a cluster."""

    side: Location
    resource: Resource
    names: tuple[str, ...]
    operation: Operation
    purpose: str
    """What the flow cannot do without: ``"write copies"``."""
    optional: bool = False
    """Whether the flow carries out its spec without, but not under all circumstances."""
    prefix: str = ""
    """What ``names``, and those that come later, begin with: one ACL is for all of them."""


def needed_rights(
    context: FlowContext, topics: Collection[str], groups: Collection[str]
) -> Iterator[Need]:
    """``topics`` and ``groups``: those of the source that the flow replicates now."""
    yield from _to_copy(context, tuple(sorted(topics)))
    yield from _to_keep_settings(context, tuple(sorted(topics)))
    yield from _for_heartbeats(context)
    if context.spec.topic_deletion.mode is not TopicDeletionMode.DISABLED:
        yield from _to_delete(context, tuple(sorted(topics)))
    if context.spec.acls.enabled:
        yield from _to_keep_acls(context)
    if context.spec.checkpoints.enabled:
        yield from _for_checkpoints(context, tuple(sorted(groups)))


def copies(context: FlowContext, topics: Collection[str]) -> tuple[str, ...]:
    """The topics of the target, sorted."""
    return tuple(sorted(map(context.policy.target_topic, topics)))


def _to_copy(context: FlowContext, topics: tuple[str, ...]) -> Iterator[Need]:
    spec, there = context.spec, copies(context, topics)
    prefix = _prefix(context)
    target = _Side(Location.TARGET, prefix)
    yield Need(Location.SOURCE, Resource.TOPIC, topics, Operation.READ, "read the records")
    yield target.need(there, Operation.CREATE, "make the copies that are absent")
    yield target.need(there, Operation.WRITE, "write the copies")
    yield target.need(
        there, Operation.ALTER, "add partitions to copies when their sources get more", True
    )
    progress = (context.progress.topic,)
    for operation in _KEEP:
        yield _Side(Location.TARGET).need(progress, operation, "keep the flow's progress")
    if dead_letters := spec.on_record_error.dead_letter_topic:
        for operation in _MAKE:
            purpose = "write the records that the target refuses"
            yield _Side(Location.TARGET).need((dead_letters,), operation, purpose)
    if context.preserved:
        purpose = "begin copies where their sources begin"
        yield target.need(there, Operation.DELETE, purpose)
        yield target.need(there, Operation.DESCRIBE_CONFIGS, "give copies their sources' offsets")
    optional = not context.preserved
    purpose = "repeat nothing after a crash" if optional else "give copies their sources' offsets"
    yield target.need(there, Operation.READ, purpose, optional)
    if context.exactly_once:
        optional, purpose = False, "copy in transactions"
    yield Need(
        Location.TARGET,
        Resource.TRANSACTIONAL_ID,
        (TRANSACTIONAL_IDS,),
        Operation.WRITE,
        purpose,
        optional,
        TRANSACTIONAL_IDS,
    )


def _to_keep_settings(context: FlowContext, topics: tuple[str, ...]) -> Iterator[Need]:
    sync, target = context.spec.topic_configs.enabled, _Side(Location.TARGET, _prefix(context))
    purpose = "keep the settings of copies like their sources'"
    read = purpose if sync else "notice deletions at risk, and settings that differ"
    own = _Side(Location.SOURCE)
    optional = not (sync or context.preserved)
    yield own.need(topics, Operation.DESCRIBE_CONFIGS, read, optional)
    if sync:
        for operation in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS):
            yield target.need(copies(context, topics), operation, purpose)
    yield _Side(Location.TARGET).need(
        (context.progress.topic,), Operation.DESCRIBE_CONFIGS, "check that it is compacted", True
    )


def _to_keep_acls(context: FlowContext) -> Iterator[Need]:
    purpose = "keep the ACLs of copies like their sources'"
    for side, operation in (
        (Location.SOURCE, Operation.DESCRIBE),
        (Location.TARGET, Operation.DESCRIBE),
        (Location.TARGET, Operation.ALTER),
    ):
        yield Need(side, Resource.CLUSTER, (THE_CLUSTER,), operation, purpose)
    for operation in _KEEP:
        topic = acls_topic(context.spec.source.alias)
        yield _Side(Location.TARGET).need((topic,), operation, "remember the ACLs that it added")


def _to_delete(context: FlowContext, topics: tuple[str, ...]) -> Iterator[Need]:
    made = (made_topics_topic(context.spec.source.alias),)
    for operation in _KEEP:
        yield _Side(Location.TARGET).need(made, operation, "remember the copies that it makes")
    if context.spec.topic_deletion.mode is TopicDeletionMode.ENABLED:
        yield _Side(Location.TARGET, _prefix(context)).need(
            copies(context, topics), Operation.DELETE, "delete copies whose sources are deleted"
        )


def _for_heartbeats(context: FlowContext) -> Iterator[Need]:
    heartbeats = context.spec.heartbeats
    if not heartbeats.enabled:
        return
    for side in (Location.SOURCE, Location.TARGET) if heartbeats.on_source else (Location.TARGET,):
        for operation in _MAKE:
            yield _Side(side).need((HEARTBEATS,), operation, "write heartbeats")


def _for_checkpoints(context: FlowContext, groups: tuple[str, ...]) -> Iterator[Need]:
    spec = context.spec
    where = _Side(spec.offset_syncs.location)
    for operation in () if context.preserved else _KEEP:
        yield where.need((context.offset_syncs.topic,), operation, "keep offset syncs")
    for operation in _KEEP:
        topics = (context.checkpoints_topic,)
        yield _Side(Location.TARGET).need(topics, operation, "write checkpoints")
    purpose = "read the offsets of groups"
    yield Need(Location.SOURCE, Resource.GROUP, groups, Operation.DESCRIBE, purpose)
    if spec.checkpoints.apply_to_groups:
        purpose = "commit the offsets of groups"
        yield Need(Location.TARGET, Resource.GROUP, groups, Operation.READ, purpose)


@dataclass(frozen=True)
class _Side:
    """Where topics are, and what their names begin with."""

    side: Location
    prefix: str = ""

    def need(
        self, names: tuple[str, ...], operation: Operation, purpose: str, optional: bool = False
    ) -> Need:
        return Need(self.side, Resource.TOPIC, names, operation, purpose, optional, self.prefix)


def _prefix(context: FlowContext) -> str:
    policy = context.spec.replication_policy
    named = policy.type == "Default"
    return f"{context.spec.source.alias}{policy.separator}" if named else ""
