"""Survey of a flow before its fail-over: copied partitions, groups and denied writes."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.api import HEARTBEATS, TopicPartition, denials_topic
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.groups import GroupPartition, other_groups
from headrace.connect.failover.switch import gaps
from headrace.connect.runtime.both_clusters import groups_in_use
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.topic_sync import AddedAcls
from headrace.errors import Fatal, HeadraceError, InvalidSpec
from headrace.kafka import Position
from headrace.logs import get_logger
from headrace.replication import (
    SHARE_GROUP,
    Loss,
    Progress,
    ProgressKey,
    Switch,
    TopicAcl,
    write_denial,
)

_EXACT_TIMEOUT_S = 15.0
"""Time in seconds to wait for the offset sync that makes a translation exact."""
_POLL_S = 0.5
_ROUNDS = 3
"""Maximum number of times that the groups of the target are set, because groups of the source
may commit during the fail-over."""
_LATE_S = 6.0
"""Time in seconds to watch groups that committed during the fail-over. Consumers commit every 5 s
by default (``auto.commit.interval.ms``)."""


@dataclass(frozen=True)
class Partition:
    """State of a partition of the source."""

    stored: Progress | None
    source_end: int
    """End of the partition's log. If the source is lost, the highest end that was stored."""
    grew: int = 0
    """Number of offsets by which the log grew while it was watched."""

    @property
    def behind(self) -> int:
        """Number of offsets that are not copied; at least 1 without progress."""
        return self.source_end - self.stored.source_offset if self.stored else self.source_end or 1

    @property
    def switch(self) -> Switch | None:
        """Stored fail-over of the partition, or None."""
        return self.stored.switch if self.stored else None


@dataclass(frozen=True)
class Survey:
    """State of all partitions that the flow copies, except heartbeats."""

    partitions: Mapping[TopicPartition, Partition]
    active: frozenset[str] = frozenset()
    """Groups of the source that have members and offsets of the flow's topics."""
    seen_ms: int = 0
    """Time of the last stored progress, as Unix time in ms; 0 if there is none."""
    incomplete: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    """Progress of partitions whose copies lack records. Partitions that no longer exist on the
    source are included."""

    @property
    def losses(self) -> dict[TopicPartition, tuple[Loss, ...]]:
        """Losses because of which copies lack records."""
        return {at: gaps(one) for at, one in sorted(self.incomplete.items())}

    @property
    def not_accepted(self) -> frozenset[TopicPartition]:
        """Partitions with losses that no fail-over has accepted."""
        return frozenset(
            at
            for at, one in self.incomplete.items()
            if not one.switch or not {*gaps(one)} <= {*one.switch.accepted}
        )

    @property
    def waits(self) -> dict[TopicPartition, int]:
        """Partitions in ``behind`` without an unresolved loss, which the flow still copies."""
        return {
            at: more
            for at, more in self.behind.items()
            if not ((one := self.partitions[at].stored) and one.loss and one.loss.unresolved)
        }

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """Number of offsets that are not copied.

        Partitions that are copied to their ends are left out.
        """
        return {at: one.behind for at, one in sorted(self.partitions.items()) if one.behind > 0}

    @property
    def grew(self) -> dict[TopicPartition, int]:
        """Number of offsets by which logs grew, without logs that did not grow."""
        return {at: one.grew for at, one in sorted(self.partitions.items()) if one.grew}

    @property
    def switched(self) -> bool:
        """Whether all partitions are failed over."""
        return all(one.switch for one in self.partitions.values())


def survey(context: FlowContext, quiet_s: float) -> Survey:
    """Survey both clusters, and watch the source for ``quiet_s``.

    Raises:
        InvalidSpec: The source has no topic of the flow.
        HeadraceError: A cluster could not be read.
    """
    stored, seen_ms = _stored(context)
    topics = context.source.topics()
    partitions = {
        TopicPartition(topic, number)
        for topic, count in topics.items()
        if topic != HEARTBEATS and context.topics.matches(topic)
        for number in range(count)
    }
    if not partitions:
        raise InvalidSpec(f"{context.source.name} has no topic of flow {context.name}")
    before = context.source.offsets(partitions, Position.LATEST)
    context.sleep(quiet_s)
    ends = context.source.offsets(partitions, Position.LATEST)
    progress = {at: stored.get(context.progress_key(at)) for at in partitions}
    found = {at: Partition(progress[at], ends[at], ends[at] - before[at]) for at in partitions}
    return Survey(found, _active(context), seen_ms, _incomplete(context, stored))


def survey_target(context: FlowContext) -> Survey:
    """Survey a flow without its source, from the progress on the target.

    Raises:
        InvalidSpec: The target has no progress of the flow.
    """
    stored, seen_ms = _stored(context)
    ours = {key: one for key, one in stored.items() if _is_of(context, key)}
    if not ours:
        raise InvalidSpec(f"{context.target.name} holds no progress of flow {context.name}")
    # A source that was created again under the same alias has another cluster id. The one with the
    # latest progress is used.
    latest = max(ours, key=context.progress.stored_ms)
    context.source_cluster_id = latest.source_cluster_id
    found = {
        TopicPartition(key.topic, key.partition): Partition(
            one, max(one.source_end, one.source_offset)
        )
        for key, one in ours.items()
        if key.source_cluster_id == latest.source_cluster_id
    }
    return Survey(found, seen_ms=seen_ms, incomplete=_incomplete(context, stored))


class LateCommit(NamedTuple):
    """Commit of a group on the source, after the group of the target was set."""

    before: int | None
    """Source offset for which the group of the target was set, or None."""
    after: int


def committed_offsets(context: FlowContext) -> dict[GroupPartition, int]:
    """Return the committed offsets of the consumer groups of the source that can be read."""
    found, _ = context.source.committed(_names(context))
    return {
        GroupPartition(group, at): one.offset
        for group, offsets in found.items()
        for at, one in offsets.items()
    }


def settle_groups(
    context: FlowContext, groups: GroupCheckpoints, before: Mapping[GroupPartition, int]
) -> dict[GroupPartition, LateCommit]:
    """Translate the groups' committed source offsets, and set the groups of the target.

    The target is not in use before the fail-over. Therefore a group that moved back on the source
    also moves back on the target, unless a consumer of the target has committed.

    A group without members may commit during the fail-over. Therefore the offsets are read again,
    and changed offsets are set, for a limited number of rounds. Return the commits that follow the
    last round. Wait for late commits only if a consumer group has committed after the offsets
    ``before``, or is not in them.
    """
    groups.read(_names(context))
    in_use = any(
        before.get(at) != one.offset and one.metadata != SHARE_GROUP
        for at, one in groups.waiting.items()
    )
    until_s = context.clock.monotonic() + _EXACT_TIMEOUT_S
    for _ in range(_ROUNDS):
        while groups.waiting:
            groups.write(last=context.clock.monotonic() >= until_s, apply=True, back=True)
            if groups.waiting:
                context.sleep(_POLL_S)
        changed = groups.read_again(_names(context))
        if not changed:
            break
        in_use = True
    until_s = context.clock.monotonic() + _LATE_S
    while in_use and not changed and context.clock.monotonic() < until_s:
        context.sleep(_POLL_S)
        changed = groups.read_again(_names(context))
    late = {
        at: LateCommit(one and one.offset, groups.waiting[at].offset) for at, one in changed.items()
    }
    return {at: one for at, one in late.items() if one.before != one.after}


def plan_groups(context: FlowContext, groups: GroupCheckpoints, *, planned: bool) -> None:
    """Determine the effect of a fail-over on the groups of the target, without a change.

    ``planned`` states that the source is available.
    """
    if not planned:
        groups.plan_written()
    elif context.progress.exists():  # following it would create the topic
        groups.read(_names(context))
        groups.plan()


def _names(context: FlowContext) -> set[str]:
    """Return the groups of the source whose offsets are translated."""
    names = {group for group in context.source.groups() if context.groups.matches(group)}
    with suppress(HeadraceError):  # the caller reports groups that are not translated
        names |= other_groups(context).starts.keys()
    return names


def _stored(context: FlowContext) -> tuple[dict[ProgressKey, Progress], int]:
    progress = context.progress
    if not progress.exists():
        return {}, 0  # following it would create the topic
    progress.start()
    progress.read_to_end()
    found = progress.entries()
    return found, max(map(progress.stored_ms, found), default=0)


def _incomplete(
    context: FlowContext, stored: Mapping[ProgressKey, Progress]
) -> dict[TopicPartition, Progress]:
    return {
        TopicPartition(key.topic, key.partition): one
        for key, one in stored.items()
        if key.source_cluster_id == context.source_cluster_id and _is_of(context, key) and gaps(one)
    }


def _is_of(context: FlowContext, key: ProgressKey) -> bool:
    copy = context.policy.target_topic(key.topic)
    return (
        key.topic != HEARTBEATS and context.topics.matches(key.topic) and copy == key.target_topic
    )


def _active(context: FlowContext) -> frozenset[str]:
    return frozenset(
        group
        for group, topics in groups_in_use(context.source).items()
        if context.groups.matches(group) and any(map(context.topics.matches, topics))
    )


log = get_logger(__name__)


def deny_writes(context: FlowContext, topics: Collection[str]) -> None:
    """Deny writes to topics of the source for all users except super users.

    ``allow_writes`` does not remove denials that users have added.

    Raises:
        Fatal: The permission is missing, or the brokers support no ACLs. Nothing is changed then.
    """
    source = context.clients.acls(context.source_access)
    with _remembered(context) as added:
        with _explained(context, "denied"):
            there = {TopicAcl(**one) for one in source.topic_acls()}
        new = {write_denial(topic) for topic in topics} - there
        ours = added.read()
        added.remember(new - ours)
        try:
            with _explained(context, "denied"):
                source.add_acls([one._asdict() for one in new])
        except HeadraceError:
            with suppress(HeadraceError):  # without permission, the removal also fails
                source.remove_acls([one._asdict() for one in new])
                added.forget(new - ours)
            raise
    log.info("writes denied", flow=context.name, topics=len(topics))


def allow_writes(context: FlowContext) -> frozenset[str]:
    """Remove the denials that ``deny_writes`` added; return their topics. Raise the same errors."""
    with _remembered(context) as added:
        if not added.exists():
            return frozenset()  # without permission to see the topic, nothing was denied
        ours = {one for one in added.read() if context.topics.matches(one.topic)}
        if ours:
            with _explained(context, "allowed again"):
                source = context.clients.acls(context.source_access)
                source.remove_acls([one._asdict() for one in ours])
            added.forget(ours)
    return frozenset(one.topic for one in ours)


def still_denied(context: FlowContext) -> frozenset[str]:
    """Return the topics with a denial of ``deny_writes`` that was not removed."""
    with _remembered(context) as added:
        if not added.exists():
            return frozenset()
        return frozenset(one.topic for one in added.read() if context.topics.matches(one.topic))


@contextmanager
def _remembered(context: FlowContext) -> Iterator[AddedAcls]:
    added = AddedAcls(context, denials_topic(context.spec.source.alias))
    try:
        yield added
    finally:
        added.close()


@contextmanager
def _explained(context: FlowContext, done: str) -> Iterator[None]:
    try:
        yield
    except HeadraceError as error:
        raise Fatal(
            f"writes to topics of {context.source.name} cannot be {done}: {error}. It needs the "
            "permissions Describe and Alter on that cluster (`kafka-acls.sh --add --cluster "
            "--operation Alter --operation Describe`), and an authorizer there"
        ) from error
