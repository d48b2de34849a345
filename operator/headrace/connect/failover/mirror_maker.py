"""Stored offsets of MirrorMaker 2, and their import as the progress of a flow."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.api import TopicPartition, connect_offsets_topic, offset_syncs_topic
from headrace.api.flow import Location
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog
from headrace.connect.checkpoint.groups import GroupPartition
from headrace.connect.failover.switch import Beginning, store_beginnings
from headrace.connect.runtime.both_clusters import find_offsets, target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.offset_sync_writer import ensure_offset_syncs_topic
from headrace.connect.topics.internal_topics import Keyed, TopicTail, TopicWriter
from headrace.errors import Fatal, HeadraceError, InvalidSpec
from headrace.kafka import Position
from headrace.replication import (
    DEDICATED_CONNECTOR,
    OFFSETS_PARTITIONS,
    ConnectPartition,
    OffsetSync,
    Progress,
    StoredCheckpoint,
    connect_group,
    decode_position,
    encode_position,
)


@dataclass(frozen=True)
class MirrorMaker:
    """State topic and group of MirrorMaker 2's Connect workers.

    The default names are the names in dedicated mode.
    """

    context: FlowContext
    """Context of the flow between the same clusters."""
    topic: str
    """Connect's offsets topic on the target."""
    group: str
    """Group id of the Connect workers that run MirrorMaker 2."""
    connector: str | None = None
    """Name of the connector; None for the only one with offsets of the source."""

    @classmethod
    def of(
        cls, context: FlowContext, topic: str | None, group: str | None, connector: str | None
    ) -> "MirrorMaker":
        """Return the object; None as an argument selects MirrorMaker 2's default."""
        alias = context.spec.source.alias
        topic, group = topic or connect_offsets_topic(alias), group or connect_group(alias)
        return cls(context, topic, group, connector)

    @property
    def exists(self) -> bool:
        """Whether the offsets topic exists."""
        return bool(self.context.target.describe([self.topic]))

    @property
    def is_empty(self) -> bool:
        """Whether the offsets topic contains no offsets of any source."""
        return not self._read()

    def create(self) -> None:
        """Create the offsets topic with Connect's settings, and wait for its leaders."""
        factor = self.context.spec.target.replication_factor or -1
        config = {"cleanup.policy": "compact"}
        self.context.target.create_topic(self.topic, OFFSETS_PARTITIONS, factor, config=config)
        self._ends()  # wait until its partitions have leaders

    def check_no_members(self) -> None:
        """Raise ``Fatal`` if the group of MirrorMaker 2's workers has members.

        Call it before the offsets are read, because a running MirrorMaker 2 has possibly stored
        no offsets yet.
        """
        target = self.context.target
        if target.has_members(self.group):
            raise Fatal(
                f"MirrorMaker 2 runs: group {self.group} on {target.name} has members. Stop it "
                "first; after a kill brokers need some seconds to notice"
            )

    def check_stopped(self, copies: frozenset[TopicPartition], quiet_s: float) -> None:
        """Raise ``Fatal`` if MirrorMaker 2 runs.

        It runs if its group has members, or if its offsets topic or ``copies`` (partitions of the
        target) grow within ``quiet_s``.
        """
        self.check_no_members()
        target = self.context.target
        before = self._ends() | target.known_ends(copies)
        self.context.sleep(quiet_s)
        after = self._ends() | target.known_ends(copies)
        if grew := sorted(at for at, end in after.items() if end != before.get(at, end)):
            raise Fatal(
                f"MirrorMaker 2 runs, or another writer: {grew[0]} on {target.name} grew within "
                f"{quiet_s:.0f} s. Stop it first"
            )

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset that MirrorMaker 2 would copy, for each partition of the source.

        Raises:
            InvalidSpec: The topic does not exist or has no offsets of the source.
        """
        target, alias = self.context.target, self.context.spec.source.alias
        if not self.exists:
            raise InvalidSpec(f"there is no topic {self.topic} on {target.name}{self._instead()}")
        if not (found := self._read()):
            raise InvalidSpec(
                f"{self.topic} on {target.name} contains no offsets. MirrorMaker 2 stores them "
                "every offset.flush.interval.ms (60 s), and when it is stopped by SIGTERM. If it "
                "was killed before that, start it again, and stop it by SIGTERM: it copies all "
                "records once more"
            )
        ours = {one: offset for one, offset in found.items() if one.cluster == alias}
        if not ours:
            others = ", ".join(sorted({one.cluster for one in found}))
            raise InvalidSpec(
                f"{self.topic} on {target.name} has positions of these sources: {others}; "
                f"spec.source.alias is {alias}, and must be the alias that MirrorMaker 2 has"
            )
        names = sorted({one.connector for one in ours})
        if self.connector is None and len(names) > 1:
            raise InvalidSpec(
                f"{self.topic} on {target.name} has positions of several connectors from {alias}: "
                f"{', '.join(names)}; name one by --connector"
            )
        connector = self.connector or names[0]
        if connector not in names:
            raise InvalidSpec(
                f"{self.topic} on {target.name} has no position of connector {connector} from "
                f"{alias}, but of {', '.join(names)}"
            )
        return {one.at: offset for one, offset in ours.items() if one.connector == connector}

    def _instead(self) -> str:
        """Return the end of a message: where MirrorMaker 2 may have stored its offsets."""
        alias = self.context.spec.source.alias
        others = _aliases(self.context.target.topics(), connect_offsets_topic)
        if others and self.topic == connect_offsets_topic(alias):
            return (
                f", but there are offsets of a MirrorMaker 2 whose source is {' or '.join(others)}:"
                f" spec.source.alias is {alias}, and must be the alias that MirrorMaker 2 has"
            )
        return (
            ": name the one in which MirrorMaker 2 keeps its positions by --offsets-topic "
            "(offset.storage.topic of its Connect cluster)"
        )

    def write(self, positions: Mapping[TopicPartition, int]) -> None:
        """Write the offsets at which MirrorMaker 2 resumes.

        Raises:
            HeadraceError: The offsets could not be written.
        """
        connector, alias = self.connector or DEDICATED_CONNECTOR, self.context.spec.source.alias
        TopicWriter(self.topic, self.context, by_key=True).write(
            (
                Keyed(ConnectPartition(connector, alias, at).key(), encode_position(offset))
                for at, offset in positions.items()
            ),
            "positions of MirrorMaker 2",
        )

    def _read(self) -> dict[ConnectPartition, int]:
        context, found = self.context, dict[ConnectPartition, int]()
        for at in self._ends():
            access, clients = context.target_access, context.clients
            tail = TopicTail(
                at.topic, access, context.target, clients, context.clock, partition=at.partition
            )
            for message in tail.read():
                if (one := ConnectPartition.decode(message.key() or b"")) is None:
                    continue
                if (offset := decode_position(message.value())) is None:
                    found.pop(one, None)
                else:
                    found[one] = offset
            tail.close()
        return found

    def _ends(self) -> dict[TopicPartition, int]:
        target = self.context.target
        count = target.topics().get(self.topic, 0)
        return target.offsets(
            [TopicPartition(self.topic, n) for n in range(count)], Position.LATEST
        )


def _aliases(topics: Iterable[str], name: Callable[[str], str]) -> list[str]:
    """Return the aliases in names of topics. ``name`` returns the topic's name for an alias."""
    before, after = name("*").split("*")
    return sorted(
        topic.removeprefix(before).removesuffix(after)
        for topic in topics
        if topic.startswith(before) and topic.endswith(after)
    )


_MAX_SYNCS = 64
"""Maximum number of imported offset syncs of a partition. MirrorMaker 2 keeps the same number in
memory (``OffsetSyncStore``)."""


class ImportedPartition(NamedTuple):
    """Partition that the flow continues."""

    position: int | None
    """Next offset that MirrorMaker 2 would copy; None if it has copied nothing."""
    source_offset: int
    """Source offset at which the flow resumes."""
    source_start: int
    source_end: int
    target_end: int
    before: Progress | None
    """Stored progress of the flow, or None."""
    stays: bool
    """Whether the flow's stored offset is kept because MirrorMaker 2 is not ahead of it."""

    @property
    def goes_on_at(self) -> int:
        """Next offset that the flow copies."""
        return self.before.source_offset if self.stays and self.before else self.source_offset

    @property
    def left(self) -> range:
        """Offsets of the source that the flow copies next."""
        return range(max(self.goes_on_at, self.source_start), self.source_end)


class Import(NamedTuple):
    """Plan of an import."""

    partitions: Mapping[TopicPartition, ImportedPartition]
    not_of_flow: tuple[str, ...]
    """Topics that MirrorMaker 2 copies and the flow does not."""
    not_of_mirror_maker: tuple[str, ...]
    """Topics that the flow copies and MirrorMaker 2 does not. ``spec.startFrom`` determines where
    the flow begins to copy them."""
    problem: str = ""
    """Sentence, without a full stop, about missing offset syncs."""


def plan_import(context: FlowContext, mirror: MirrorMaker, *, again: bool) -> Import:
    """Return the plan of an import.

    ``again`` states that the flow has copied before, and that later offsets of MirrorMaker 2
    replace its stored ones.

    Raises:
        InvalidSpec: The flow does not fit MirrorMaker 2's copies.
    """
    if context.preserved:
        raise InvalidSpec(
            f"flow {context.name} has offsets.mode: Preserved, and what MirrorMaker 2 has "
            "copied has other offsets than its source: import with a flow that has "
            "offsets.mode: Translated"
        )
    positions = mirror.positions()
    counts = context.source.topics()
    topics = {at.topic for at in positions if context.topics.matches(at.topic)} & counts.keys()
    if not topics:
        copied = ", ".join(sorted({at.topic for at in positions}))
        raise InvalidSpec(
            f"MirrorMaker 2 has copied none of the topics of flow {context.name}, but {copied}: "
            "spec.topics must be what it has"
        )
    problem = _check_target_alias(context, counts)
    _check_policy(context, {topic: counts[topic] for topic in topics})
    partitions = {TopicPartition(topic, n) for topic in topics for n in range(counts[topic])}
    before = stored_progress(context, partitions)
    known = {at for at, one in before.items() if one is not None}
    if known and not again:
        at = min(known)
        raise InvalidSpec(
            f"flow {context.name} has copied {at} before, to offset "
            f"{_offset(before[at])}: resume the flow, or, if MirrorMaker 2 has copied more records "
            "since then, add --again"
        )
    offsets = find_offsets(context, partitions)
    for error in offsets.failed.values():
        raise error
    taken = {}
    for at in sorted(partitions):
        position = positions.get(at)
        start, end = offsets.starts[at], offsets.ends[at]
        if position is not None and position > end:
            raise InvalidSpec(
                f"MirrorMaker 2 has copied {at} to offset {position}, and it ends at {end} on "
                f"{context.source.name}: the topic was created again, or belongs to another cluster"
            )
        # MirrorMaker 2 begins a partition without a stored offset at the start of the log.
        begins = start if position is None else position
        stays = _offset(before[at]) >= begins if before[at] else False
        target_end = offsets.target_ends[at]
        taken[at] = ImportedPartition(position, begins, start, end, target_end, before[at], stays)
    matching = {topic for topic in counts if context.topics.matches(topic)}
    others = {at.topic for at in positions} - topics
    return Import(taken, tuple(sorted(others)), tuple(sorted(matching - topics)), problem)


class TargetGroupOwners(NamedTuple):
    """Offsets of groups on the target, by the client that has committed them."""

    synchronized: Mapping[GroupPartition, StoredCheckpoint]
    """Offsets that MirrorMaker 2 has set. The flow may change them."""
    foreign: tuple[GroupPartition, ...]
    """Offsets that a consumer of the target has committed. The flow does not change them."""
    unread: tuple[HeadraceError, ...] = ()
    """Errors of groups whose offsets could not be read."""


def find_groups(context: FlowContext, plan: Import) -> TargetGroupOwners:
    """Find the groups of the target whose offsets MirrorMaker 2 has set.

    MirrorMaker 2 sets a group to a checkpoint that it has written, which may not be the last one,
    and commits without a leader epoch. A consumer commits the leader epoch of the last record.
    """
    topic = context.checkpoints_topic
    if not context.spec.checkpoints.enabled or not context.target.describe([topic]):
        return TargetGroupOwners({}, ())
    log = CheckpointLog(context, keeps_earlier=True)
    try:
        log.prepare()
    finally:
        log.close()
    written = {at: one for at, one in log.of_flow().items() if at.at in plan.partitions}
    committed, unread = context.target.committed({group for group, _ in written})
    found, foreign = {}, []
    for position, stored in written.items():
        held = committed.get(position.group, {}).get(target_partition(context, position.at))
        if held is None or held.offset in stored.ours:
            continue
        if held.offset in log.earlier(stored.checkpoint.key()) and held.leader_epoch < 0:
            found[position] = StoredCheckpoint(
                stored.checkpoint, tuple(sorted({*stored.applied, held.offset}))
            )
        else:
            foreign.append(position)
    return TargetGroupOwners(found, tuple(sorted(foreign)), tuple(unread.values()))


def do_import(context: FlowContext, plan: Import, groups: TargetGroupOwners) -> int:
    """Store the plan as the flow's progress; return the number of imported offset syncs.

    Raises:
        Retriable: The target did not store it in time.
    """
    taken = {at: one for at, one in plan.partitions.items() if not one.stays}
    syncs = _import_syncs(context, taken)
    if groups.synchronized:
        log = CheckpointLog(context)
        try:
            log.prepare()
            log.write(groups.synchronized.values())
        finally:
            log.close()
    store_beginnings(
        context,
        "import",
        {at: Beginning(one.source_offset, one.target_end, one.before) for at, one in taken.items()},
    )
    return syncs


def _offset(progress: Progress | None) -> int:
    return progress.source_offset if progress else 0


def _check_policy(context: FlowContext, counts: Mapping[str, int]) -> None:
    """Check that the flow names copies as MirrorMaker 2 does, and the copies' partition counts.

    ``counts`` contains the number of source partitions of each topic that MirrorMaker 2 has copied.
    """
    copies = {topic: context.policy.target_topic(topic) for topic in counts}
    there = context.target.describe(copies.values())
    if absent := sorted(topic for topic, copy in copies.items() if copy not in there):
        topic = absent[0]
        raise InvalidSpec(
            f"MirrorMaker 2 has copied {topic}, and {context.target.name} has no topic "
            f"{copies[topic]}: spec.replicationPolicy must name copies as MirrorMaker 2 does; "
            "if the copy was deleted, exclude the topic"
        )
    for topic, count in sorted(counts.items()):
        here = there[copies[topic]].partitions
        if here < count:
            raise InvalidSpec(
                f"{topic} has {count} partitions, and {copies[topic]} on "
                f"{context.target.name} has {here}: add them there first"
            )


def _check_target_alias(context: FlowContext, topics: Collection[str]) -> str:
    """Check that the flow's alias of the target is MirrorMaker 2's, by the topic of offset syncs.

    ``topics`` contains the topics of the source. Return a sentence if there are no offset syncs.
    """
    spec, source = context.spec, context.source.name

    def name(alias: str) -> str:
        return offset_syncs_topic(alias, spec.replication_policy.separator)

    topic = name(spec.target.alias)
    on_target = name(spec.source.alias)  # with offset-syncs.topic.location=target
    if not spec.checkpoints.enabled or topic in topics or on_target in context.target.topics():
        return ""
    if others := _aliases(topics, name):
        raise InvalidSpec(
            f"{source} has no topic {topic}, but offset syncs of a MirrorMaker 2 whose target is "
            f"{' or '.join(others)}: spec.target.alias is {spec.target.alias}, and must be the "
            "alias that MirrorMaker 2 has. Only without spec.checkpoints.enabled are offset syncs "
            "not needed"
        )
    return (
        f"{source} has no topic {topic} that the user may describe: offsets of groups among the "
        "records that MirrorMaker 2 copied are not translated"
    )


def stored_progress(
    context: FlowContext, partitions: set[TopicPartition]
) -> dict[TopicPartition, Progress | None]:
    if not context.progress.exists():
        return dict.fromkeys(partitions)  # following it would create the topic
    context.progress.start()
    context.progress.read_to_end()
    return {at: context.stored(at) for at in partitions}


def _import_syncs(context: FlowContext, taken: Mapping[TopicPartition, ImportedPartition]) -> int:
    """Copy MirrorMaker 2's offset syncs from the source; return their number.

    They are needed for groups with a lag. If the flow stores offset syncs on the source, nothing is
    copied, because it uses MirrorMaker 2's topic.
    """
    spec = context.spec
    topic = offset_syncs_topic(spec.target.alias, spec.replication_policy.separator)
    if (
        not spec.checkpoints.enabled
        or spec.offset_syncs.location is not Location.TARGET
        or not context.source.describe([topic])
    ):
        return 0
    tail = TopicTail(topic, context.source_access, context.source, context.clients, context.clock)
    found: dict[TopicPartition, list[OffsetSync]] = {}
    for message in tail.read():
        try:
            sync = OffsetSync.decode(message.key() or b"", message.value() or b"")
        except ValueError:
            continue  # a tombstone, or a record of another program
        one = taken.get(at := TopicPartition(sync.topic, sync.partition))
        if one is not None and _offset(one.before) <= sync.source_offset < one.source_offset:
            syncs = found.setdefault(at, [])
            if syncs and syncs[-1].source_offset >= sync.source_offset:
                syncs.clear()  # MirrorMaker 2 restarted at an earlier offset
            syncs.append(sync)
    tail.close()
    latest = [sync for syncs in found.values() for sync in syncs[-_MAX_SYNCS:]]
    if latest:
        own = context.offset_syncs.topic
        ensure_offset_syncs_topic(context.target, own)
        TopicWriter(own, context).write(
            (Keyed(sync.key(), sync.value()) for sync in latest), "offset syncs"
        )
    return len(latest)
