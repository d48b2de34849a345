"""Checks of both clusters before a flow starts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import permutations
from typing import NamedTuple

from headrace.api import (
    HEARTBEATS,
    MAX_MESSAGE_LENGTH,
    ClusterSpec,
    Condition,
    ConditionStatus,
    ConditionType,
    FlowState,
    Reason,
    ReplicationFlow,
    TopicPartition,
    earlier_name,
    is_internal,
    is_progress_topic,
)
from headrace.api.flow import Location
from headrace.connect.preflight.disk import check_disk
from headrace.connect.preflight.permissions import (
    AclResource,
    CheckResult,
    Finding,
    RequiredPermission,
    check_rights,
    known_topics,
    named,
    needed_rights,
)
from headrace.connect.preflight.topic_settings import (
    check_copies,
    check_internal_topics,
    check_replicas,
    check_synchronized,
    read_settings,
)
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.flow_rings import SourceAncestry, flow_key, judged
from headrace.errors import Fatal, HeadraceError
from headrace.kafka import SHARE, Operation, Position, RightsAdmin, check_settings
from headrace.logs import get_logger
from headrace.replication import (
    NameFilter,
    loop_of_patterns,
    loop_sentence,
    may_loop,
    policy_for,
    ring_of_patterns,
    ring_sentence,
    share_addresses,
)

Field = tuple[str, ...]


def check_client(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` for settings that the client does not support; contact no broker."""
    check_settings(cluster)


def check_policy(flow: ReplicationFlow) -> None:
    """Raise ``InvalidSpec`` if the replication policy is unknown here or cannot be created."""
    policy_for(flow.spec.replication_policy, flow.spec.source.alias)


def loops(flows: Iterable[ReplicationFlow]) -> Iterator[tuple[ReplicationFlow, Field, str]]:
    """Yield flows whose topics return to them through other flows, by their patterns.

    Each flow is yielded with the field that causes the loop, and a sentence. The policies must be
    known.
    """
    running = [one for one in flows if one.spec.state is not FlowState.STOPPED and may_loop(one)]
    if ring := ring_of_patterns(running):
        field = ("spec", "topics", "include")
        yield ring[-1].flow, field, f"{'.'.join(field)}: {ring_sentence(ring)}"
    for there, back in permutations(running, 2):
        if share_addresses(there, back) and (loop := loop_of_patterns(there, back)):
            field = (
                "spec",
                "replicationPolicy",
                "renames" if there.spec.replication_policy.renames else "type",
            )
            yield there, field, f"{'.'.join(field)}: {loop_sentence(loop, back.metadata.name)}"


def check_foreign_data(
    context: FlowContext, topics: Mapping[str, int], existing: Set[str]
) -> Iterator[Finding]:
    """Yield findings about copies that contain data of other writers.

    The permission to read progress is required.

    Args:
        context: The flow.
        topics: Topics of the source with their number of partitions.
        existing: Names of the copies that exist.
    """
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
        yield Finding(Location.TARGET, subject, what, CheckResult.WARNING, f"not compared: {error}")
        return
    if foreign := {at.topic for at in filled if of[at] not in known}:
        subject = named("topic", foreign)
        why = (
            "contains records for which this flow has no progress, and the flow would append the "
            "source's records after them. If MirrorMaker 2 copied them, resume there by `headrace "
            f"flow import mm2 {context.name}` before the flow starts. Otherwise give the copy "
            "another name (spec.replicationPolicy)"
        )
        yield Finding(Location.TARGET, subject, what, CheckResult.WARNING, why)
    elif existing:
        yield Finding(Location.TARGET, subject, what, CheckResult.OK)


def _with_progress(context: FlowContext, partitions: Set[TopicPartition]) -> set[TopicPartition]:
    progress = context.progress
    if not partitions or not progress.exists():
        return set()  # following it would create the topic
    progress.start()
    progress.read_to_end()
    now_ms = context.now_ms
    return {at for at in partitions if progress.get(context.progress_key(at), now_ms) is not None}


_EVERY = ".*"
_LITERAL = re.compile(r"[\w.-]+")


def check_flow(context: FlowContext, *, rings: bool = True) -> list[Finding]:
    """Return all findings. Those about the source come first.

    If a cluster does not respond, a finding says so. ``rings`` is False if the caller finds rings
    of flows itself.
    """
    return sorted(_findings(context, rings), key=lambda one: (one.side or Location.TARGET).value)


def _findings(context: FlowContext, rings: bool) -> Iterator[Finding]:
    admins = {}
    for side, access in (
        (Location.SOURCE, context.source_access),
        (Location.TARGET, context.target_access),
    ):
        admin = context.clients.rights(access)
        connection = _connection(side, admin)
        yield connection
        if connection.outcome is CheckResult.OK:
            admins[side] = admin
            yield _version(side, admin)
    if len(admins) == 2:
        yield from _both(context, admins, rings)


def _connection(side: Location, admin: RightsAdmin) -> Finding:
    try:
        admin.cluster_id()
    except HeadraceError as error:
        return Finding(side, "cluster", "connection", CheckResult.MISSING, str(error))
    return Finding(side, "cluster", "connection", CheckResult.OK)


def _version(side: Location, admin: RightsAdmin) -> Finding:
    try:
        admin.check_version()
    except Fatal as error:
        return Finding(side, "cluster", "version", CheckResult.MISSING, str(error))
    return Finding(side, "cluster", "version", CheckResult.OK)


class _Scope(NamedTuple):
    """Topics and groups that the flow replicates at present."""

    there: Mapping[str, int]
    """Topics of the source that the flow copies, with their number of partitions."""
    others: Set[str]
    """Topics that the spec names but the user cannot see, and heartbeats, which the flow
    creates."""
    groups: Set[str]


def _both(
    context: FlowContext, admins: Mapping[Location, RightsAdmin], rings: bool
) -> Iterator[Finding]:
    source, target = admins[Location.SOURCE], admins[Location.TARGET]
    if (same := source.cluster_id()) == target.cluster_id():
        why = f"source and target are the same cluster ({same}): a flow needs two"
        yield Finding(None, "clusters", "id", CheckResult.MISSING, why)
        return
    every = source.topics()
    scope = _scope(context, every, source)
    yield from _names(context, every, scope)
    topics = scope.there.keys() | scope.others
    needs = [
        *needed_rights(context, topics, scope.groups),
        *_to_take_over(context, target),
        *_to_find_rings(every),
    ]
    factor = context.spec.target.replication_factor or -1
    new = {
        context.policy.target_topic(topic): (count, factor) for topic, count in scope.there.items()
    }
    rights = known_topics(needs, admins, new)
    yield from check_rights(context, needs, admins, rights)
    settings = read_settings(context, topics, source, target)
    there = rights[Location.TARGET]
    yield from check_replicas(there, there, settings)
    yield from check_internal_topics(context, there, settings)
    yield from check_copies(context, topics, settings)
    changeable = {
        one
        for one in topics
        if (known := there.get(context.policy.target_topic(one)))
        and Operation.ALTER_CONFIGS in known.allowed
    }
    yield from check_synchronized(context, changeable, settings, target)
    if Operation.READ in there[context.progress.topic].allowed:
        existing = {name for name in new if there[name].exists}
        yield from check_foreign_data(context, scope.there, existing)
        if rings:
            yield from _rings(context, every, scope)
    yield from check_disk(context, scope.there, admins, settings)


def _scope(context: FlowContext, every: Mapping[str, int], source: RightsAdmin) -> _Scope:
    there = {one: count for one, count in every.items() if context.topics.matches(one)}
    others = {one for one in context.topics.unmatched(list(there)) if _LITERAL.fullmatch(one)}
    if context.spec.heartbeats.enabled and context.spec.heartbeats.on_source:
        others.add(HEARTBEATS)
    seen = source.groups()
    if context.spec.checkpoints.enabled and context.spec.checkpoints.apply_to_groups:
        seen |= {one for one, kind in source.protocol_types().items() if kind == SHARE}
    groups = {one for one in seen if context.groups.matches(one)}
    include = context.spec.groups.include
    literal = {one for one in include if _LITERAL.fullmatch(one)}
    groups |= {one for one in literal if context.groups.matches(one)}
    if not groups and _EVERY in include:
        groups = {"*"}  # for ACLs: any group that is not visible or is created later
    return _Scope(there, {one for one in others if context.topics.matches(one)}, groups)


def _to_take_over(context: FlowContext, target: RightsAdmin) -> Iterator[RequiredPermission]:
    """Yield the permission to read progress that an earlier version stored under another name."""
    earlier = earlier_name(context.progress.topic)
    if earlier in target.topics():
        purpose = "take over the flow's progress from before v1beta1"
        yield RequiredPermission(
            Location.TARGET, AclResource.TOPIC, (earlier,), Operation.READ, purpose
        )


def _to_find_rings(every: Iterable[str]) -> Iterator[RequiredPermission]:
    """Yield the permission to read the ancestry that other flows have stored on the source."""
    if topics := tuple(sorted(filter(is_progress_topic, every))):
        purpose = "find rings of flows"
        yield RequiredPermission(
            Location.SOURCE, AclResource.TOPIC, topics, Operation.READ, purpose, optional=True
        )


def _rings(context: FlowContext, every: Mapping[str, int], scope: _Scope) -> Iterator[Finding]:
    """Yield a finding for each topic that the flow refuses because of a ring of flows."""
    ancestry, progress = SourceAncestry(context), context.progress
    try:
        ancestry.read(every)
        upstream, stored = ancestry.active(), {}
        if upstream and progress.exists():  # following it would create the topic
            progress.start()
            progress.read_to_end()
            stored = progress.hops(flow_key(context), context.now_ms)
        found = judged(context, scope.there, upstream, stored)
    except HeadraceError as error:
        why = f"rings of flows are not looked for: {error}"
        yield Finding(Location.SOURCE, "topics", "ring", CheckResult.WARNING, why)
        return
    finally:
        ancestry.close()
    for topic, one in sorted(found.items()):
        if one.ring is not None:
            why = one.ring.sentence
            yield Finding(
                Location.SOURCE, named("topic", {topic}), "ring", CheckResult.MISSING, why
            )


def _names(context: FlowContext, every: Mapping[str, int], scope: _Scope) -> Iterator[Finding]:
    """Yield findings about topics and groups in the spec that are not replicated."""
    spec, side = context.spec, Location.SOURCE
    asked = NameFilter(spec.topics.include, spec.topics.exclude)
    named_or_seen = every.keys() | set(filter(_LITERAL.fullmatch, spec.topics.include))
    internal = [one for one in named_or_seen if is_internal(one) and asked.matches(one)]
    if internal:
        why = "never copied: by its name it is a cluster's own; exclude it, or rename it"
        yield Finding(side, named("topic", internal), "name", CheckResult.WARNING, why)
    unmatched = [
        one
        for one in context.topics.unmatched(list(scope.there))
        if not any(re.fullmatch(one, topic) for topic in internal)
    ]
    if unmatched:
        why = "no topic that the user may describe has such a name; one that is made later is found"
        yield Finding(
            side, f"spec.topics.include {', '.join(unmatched)}", "name", CheckResult.WARNING, why
        )
    if spec.checkpoints.enabled and not scope.groups:
        why = "no group that the user may describe has such a name: without Describe none is seen"
        patterns = ", ".join(spec.groups.include)
        yield Finding(side, f"spec.groups.include {patterns}", "name", CheckResult.WARNING, why)


log = get_logger(__name__)

_RETRY_INTERVAL_S = 60.0
"""Interval in seconds between checks while something is missing, because a user may grant it."""


class Requirements:
    """Checks at the start of a flow, repeated while something is missing.

    Not thread-safe. Calls wait for brokers.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._next_s: float | None = 0.0
        self.conditions: tuple[Condition, ...] = ()

    def poll(self) -> bool:
        """Run the checks if they are due, and return whether they ran.

        No error is raised, because a missing permission prevents only the parts of the flow that
        need it.
        """
        now_s = self._context.clock.monotonic()
        if self._next_s is None or now_s < self._next_s:
            return False
        try:
            found = check_flow(self._context, rings=False)
        except HeadraceError as error:
            log.info("requirements not checked", flow=self._context.name, why=str(error))
            self._next_s = now_s + _RETRY_INTERVAL_S
            return False
        missing = [one.sentence for one in found if one.outcome is CheckResult.MISSING]
        self._next_s = now_s + _RETRY_INTERVAL_S if missing else None
        self.conditions = ()
        if missing:
            message = f"{len(missing)} of {len(found)} checks: {'; '.join(missing)}"
            self.conditions = (
                Condition(
                    type=ConditionType.REQUIREMENTS_MISSING,
                    status=ConditionStatus.TRUE,
                    reason=Reason.CHECK_FAILED,
                    message=message[:MAX_MESSAGE_LENGTH],
                ),
            )
        return True
