"""ReplicationFlow, which copies topics of one cluster to another, with its status."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from pydantic.main import IncEx

from headrace.api.cluster import (
    BETWEEN_CLUSTERS,
    ClusterSpec,
    TargetClusterSpec,
    breaches_between,
)
from headrace.api.flow_status import ReplicationFlowStatus
from headrace.api.meta import API_VERSION, ObjectMeta
from headrace.api.meta import name_breaches as object_name_breaches
from headrace.api.model import (
    FILLED_IN_BY_SERVER,
    AtLeastOne,
    Count,
    Flag,
    Matching,
    Model,
    OnlyWith,
    Regex,
    Rule,
    RuleViolation,
    Share,
    Topic,
    Whole,
)
from headrace.api.offsets import OFFSETS_RULES, Offsets, StartFrom, offsets_breaches
from headrace.api.partitions import HEARTBEATS, PausedPartitions, is_internal
from headrace.api.pods import Drivers
from headrace.api.records import HeaderChanges, RecordFilter
from headrace.api.source_watch import SourceWatchSpec

_OWN = "must not be heartbeats: these have a name of their own on the target"
_INTERNAL = (
    "must be no internal topic, such as those that begin with two underscores or a dot, and "
    "mm2*.internal"
)


def name_breaches(renames: Mapping[str, str]) -> Iterator[RuleViolation]:
    """Yield a breach for each name that is reserved, or that several topics would have."""
    counts = Counter(renames.values())
    for topic, renamed in renames.items():
        at = ("renames", topic)
        if topic == HEARTBEATS:
            yield RuleViolation(at, _OWN)
        elif is_internal(topic) or is_internal(renamed):
            yield RuleViolation(at, _INTERNAL)
        elif counts[renamed] > 1:
            others = sorted(one for one, name in renames.items() if name == renamed)
            yield RuleViolation(
                at, f"must be another name: {' and '.join(others)} would be one topic"
            )


def copy_breaches(
    renames: Mapping[str, str],
    include: Sequence[str],
    exclude: Sequence[str],
    taken: Mapping[str, str],
) -> Iterator[RuleViolation]:
    """Yield a breach for each renamed topic that is not copied, or whose new name is in use.

    ``include`` and ``exclude`` select the topics that the flow copies. ``taken`` contains further
    names on the target, with a description of their topics.
    """

    def copied(topic: str) -> bool:
        inside = any(re.fullmatch(pattern, topic) for pattern in include)
        return inside and not any(re.fullmatch(pattern, topic) for pattern in exclude)

    for topic, renamed in renames.items():
        at = ("replicationPolicy", "renames", topic)
        if not copied(topic):
            yield RuleViolation(at, f"is not copied: spec.topics does not match {topic}")
        elif renamed in taken:
            yield RuleViolation(at, f"must be another name: {renamed} is {taken[renamed]}")
        elif renamed not in renames and copied(renamed):
            yield RuleViolation(
                at,
                f"must be another name: the source's {renamed} is also copied, and keeps its name; "
                "rename it, or exclude it in spec.topics",
            )


def _unescaped(pattern: str) -> str:
    """Return the topic that an expression without operators names."""
    return re.sub(r"\\([^\w])", r"\1", pattern)


_PLUGIN = r"[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?"
_POLICIES = ("Default", "Identity", "RenameMap")
_SPELLING = f"must be spelled {', '.join(_POLICIES[:-1])} or {_POLICIES[-1]}"
PolicyType = Annotated[
    str,
    Field(max_length=63),
    Matching(_PLUGIN, "must be Default, Identity, RenameMap or a plug-in's name"),
]
AssignorName = Annotated[
    str, Field(max_length=63), Matching(_PLUGIN, "must be an assignor's name, like sticky")
]
Separator = Annotated[
    str,
    Field(min_length=1, max_length=16),
    Matching(r"[a-zA-Z0-9._-]+", "must be legal in a topic's name: letters, digits, '.', '_', '-'"),
]


class DeliveryMode(StrEnum):
    """Guarantee about repeated records. Both modes read committed records only."""

    AT_LEAST_ONCE = "AtLeastOnce"
    EXACTLY_ONCE = "ExactlyOnce"


class BatchVerification(StrEnum):
    """Selection of unchanged batches that are read back and compared."""

    DISABLED = "Disabled"
    SAMPLED = "Sampled"
    FULL = "Full"


class Location(StrEnum):
    """One of the two clusters."""

    TARGET = "Target"
    SOURCE = "Source"


class OnDataLoss(StrEnum):
    """Action when records are lost on the source before they were copied, or on the target."""

    FAIL = "Fail"
    RESTART = "Restart"
    CONTINUE = "Continue"


class TopicDeletionMode(StrEnum):
    """Deletion of copies whose source topics were deleted."""

    DISABLED = "Disabled"
    DRY_RUN = "DryRun"
    ENABLED = "Enabled"


class RecordErrorAction(StrEnum):
    """Action for a record that the target refuses permanently."""

    FAIL = "Fail"
    DEAD_LETTER = "DeadLetter"
    SKIP = "Skip"


class FlowState(StrEnum):
    """Desired state of the flow."""

    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPED = "Stopped"


class Topics(Model):
    """Selection of the topics to copy."""

    include: Annotated[tuple[Regex, ...], Field(min_length=1, max_length=1000)]
    """Regular expressions. A topic is copied if one of them matches its whole name, for example
    ["orders", "payments-.*"]. There is no default. Heartbeats are always copied, except with
    offsets: Preserved. The flow never copies names that begin with two underscores or a dot,
    internal topics of MirrorMaker 2 and headrace (mm2*.internal, *.checkpoints.internal), or topics
    whose names show that they came from the target."""
    exclude: Annotated[tuple[Regex, ...], Field(max_length=1000)] = (
        r"mm2.*\.internal",
        r".*\.replica",
        r"__.*",
    )
    """Regular expressions. A topic that one of them matches is not copied. Takes precedence over
    include. A list replaces the default, so repeat the parts of the default that you need, for
    example [".*-tmp", "__.*"]."""


class Groups(Model):
    """Selection of the consumer groups that checkpoints follow."""

    include: Annotated[tuple[Regex, ...], Field(max_length=1000)] = (".*",)
    """Regular expressions. A group is followed if one of them matches its whole name."""
    exclude: Annotated[tuple[Regex, ...], Field(max_length=1000)] = (
        "console-consumer-.*",
        "connect-.*",
        "__.*",
    )
    """Regular expressions. A group that one of them matches is not followed. Takes precedence over
    include."""


class Bandwidth(Model):
    """Limit of the rate at which a flow reads from the source."""

    bytes_per_second: Annotated[Whole, Field(ge=1024, le=1 << 40)]
    """Limit for all drivers together, in bytes per second. It counts batches as brokers send them:
    compressed, with headers. The limit is divided between drivers in proportion to their source
    tasks. Unused shares are not given to other drivers."""


class Tasks(Model):
    """Division and assignment of the work."""

    max: Annotated[AtLeastOne, FILLED_IN_BY_SERVER] = 8
    """Maximum number of source tasks; also the maximum number of checkpoint tasks."""
    standbys: Annotated[Count, FILLED_IN_BY_SERVER] = 0
    """Number of additional drivers that keep the state of a task and are ready to take over."""
    assignor: Annotated[AssignorName, FILLED_IN_BY_SERVER] = "sticky"
    """Assignor: sticky, round-robin, cooperative, or the name of a plug-in (entry point
    headrace.assignors)."""
    movement_budget: Share = 0.1
    """Largest share of the flow's units, and of its partitions, that one round moves for balance.
    There is at most one such round per minute. Units without an owner are not counted."""


class Discovery(Model):
    """Intervals at which the source is polled."""

    topics_seconds: AtLeastOne = 10
    """Seconds between polls for new topics and partitions. MirrorMaker 2: 600."""
    groups_seconds: AtLeastOne = 10
    """Seconds between polls for new consumer groups. MirrorMaker 2: 600."""


class TopicConfigs(Model):
    """Settings of topics, copied from source to target."""

    enabled: Annotated[Flag, FILLED_IN_BY_SERVER] = True
    """Keep the settings of target topics equal to the settings of their sources, and correct
    differences. Brokers' defaults are not copied. Settings that only the target has remain."""
    interval_seconds: AtLeastOne = 60
    """Seconds between two polls. MirrorMaker 2: 600."""
    exclude: Annotated[tuple[Regex, ...], Field(max_length=1000)] = (
        r"follower\.replication\.throttled\.replicas",
        r"leader\.replication\.throttled\.replicas",
        r"message\.timestamp\.difference\.max\.ms",
        r"message\.timestamp\.before\.max\.ms",
        r"message\.timestamp\.after\.max\.ms",
        r"message\.timestamp\.type",
        r"unclean\.leader\.election\.enable",
        r"min\.insync\.replicas",
    )
    """Regular expressions for settings that are not copied."""


class TopicDeletion(Model):
    """Deletion of copies whose source topics were deleted."""

    mode: Annotated[TopicDeletionMode, FILLED_IN_BY_SERVER] = TopicDeletionMode.DISABLED
    """With DryRun, the condition TopicDeletion names the copies that Enabled would delete. With
    both, the flow records from then on which copies it has created, and never deletes others. It
    also never deletes a copy that was failed over, a copy that a consumer group reads, or a copy
    while the source does not answer."""
    delay_seconds: AtLeastOne = 3600
    """Seconds for which the topic must be missing on the source before its copy can be deleted."""
    max_topics: AtLeastOne = 5
    """Maximum number of copies to delete at once. If more are due, none is deleted, and the
    condition has the reason.
    """


class Acls(Model):
    """ACLs of topics, copied from source to target."""

    enabled: Annotated[Flag, FILLED_IN_BY_SERVER] = False
    """Keep read permissions on target topics equal to the permissions on their sources. A copy gets
    the allow rules of ACLs that name its source, with All as Read, and all deny rules. Only ACLs
    that the flow added are removed."""
    interval_seconds: AtLeastOne = 600
    """Seconds between two polls."""


class Checkpoints(Model):
    """Positions of consumer groups, translated to the target."""

    enabled: Annotated[Flag, FILLED_IN_BY_SERVER] = True
    """Write checkpoints, in MirrorMaker 2's format."""
    interval_seconds: AtLeastOne = 60
    """Seconds between two checkpoints of a group."""
    apply_to_groups: Annotated[Flag, FILLED_IN_BY_SERVER] = False
    """Set the offsets of the same group on the target as well. This happens only while it has no
    members there, only forward, and only if no consumer there has committed. For a share group, the
    start offset is set before its first use there.
    """


class Heartbeats(Model):
    """Heartbeats, in MirrorMaker 2's format."""

    enabled: Annotated[Flag, FILLED_IN_BY_SERVER] = True
    """Write heartbeats."""
    interval_seconds: AtLeastOne = 1
    """Seconds between two heartbeats."""
    on_source: Annotated[Flag, FILLED_IN_BY_SERVER] = True
    """Whether heartbeats are also written on the source, where MirrorClient's upstreamClusters()
    reads them. Set false for a read-only source."""


class OffsetSyncs(Model):
    """Pairs of source and target offset, from which group positions are translated."""

    location: Annotated[Location, FILLED_IN_BY_SERVER] = Location.TARGET
    """Cluster that stores them. Source is MirrorMaker 2's default, and needs write access there."""


_DEAD_LETTER_TOPIC = OnlyWith("deadLetterTopic", "action", RecordErrorAction.DEAD_LETTER)
_RENAMES = OnlyWith("renames", "type", "RenameMap")
_SAME_ALIAS = "is immutable: topics and MirrorMaker 2's records contain it; create another flow"


class Delivery(Model):
    """Guarantee about repeated records."""

    mode: Annotated[DeliveryMode, FILLED_IN_BY_SERVER] = DeliveryMode.AT_LEAST_ONCE
    """With ExactlyOnce, the flow copies in transactions of the target that contain data and
    progress: a consumer of committed records gets each record once. With AtLeastOnce, a failure may
    repeat some records, and no consumer waits for a commit. Both read committed records only
    (MirrorMaker 2 copies aborted records by default)."""
    commit_interval_ms: Annotated[Whole, Field(ge=10, le=30_000)] = 1000
    """Time for which a task copies before it commits, in milliseconds. Consumers of committed
    records get the records at the commit. A task also commits after 64 MiB, and when the source has
    no more records. Applies only to mode: ExactlyOnce."""


class OnRecordError(Model):
    """Treatment of a record that the target rejects permanently."""

    action: Annotated[RecordErrorAction, FILLED_IN_BY_SERVER] = RecordErrorAction.FAIL
    """Action when the target rejects a record for its content (its size, its timestamp, a rule of
    the broker). Fail stops the partition, DeadLetter writes the record to deadLetterTopic, Skip
    skips it. Both are counted.
    """
    dead_letter_topic: Topic | None = None
    """Target topic for refused records, with Kafka Connect's headers. If it does not exist, it is
    created with one partition. Requires action: DeadLetter."""

    rules = _DEAD_LETTER_TOPIC.rules

    def _breaches(self) -> Iterator[RuleViolation]:
        yield from _DEAD_LETTER_TOPIC.breaches(self.dead_letter_topic, self.action)


class Policy(Model):
    """Names of target topics."""

    type: Annotated[PolicyType, FILLED_IN_BY_SERVER] = "Default"
    """Default puts the alias of the source before the name, Identity keeps the name, and RenameMap
    uses the names in renames. It can also be the name of a plug-in (entry point
    headrace.policies)."""
    separator: Separator = "."
    """Separator between alias and name with the Default policy."""
    renames: Annotated[dict[Topic, Topic], Field(min_length=1, max_length=500)] | None = None
    """Names on the target, by names on the source, for example {orders: sales.orders}. Topics that
    are not listed keep their names. Requires type: RenameMap."""

    rules = (
        Rule(
            f"!has(self.type) || self.type in {list(_POLICIES)}"
            f" || !self.type.matches('^(?i:{'|'.join(_POLICIES)})$')",
            _SPELLING,
            at="type",
        ),
        *_RENAMES.rules,
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.type not in _POLICIES and self.type.lower() in map(str.lower, _POLICIES):
            yield RuleViolation(("type",), _SPELLING)
        yield from _RENAMES.breaches(self.renames, self.type)
        yield from name_breaches(self.renames or {})


class ReplicationFlowSpec(Model):
    """Source, target, and settings of the copy."""

    source: ClusterSpec
    """Cluster that the flow reads."""
    target: TargetClusterSpec
    """Cluster to which the flow writes."""
    topics: Topics
    """Selection of the topics to copy."""
    record_filter: RecordFilter | None = None
    """Filter of the copied records. Without it, all records are copied. Excluded records count as
    copied: a group that has committed before such a record resumes at the next copied one. A change
    applies to records that are copied afterwards."""
    headers: HeaderChanges | None = None
    """Headers to add to copied records, and headers to remove. A change applies to records that are
    copied afterwards."""
    groups: Groups = Groups()
    """Selection of the consumer groups that checkpoints follow."""
    replication_policy: Annotated[Policy, FILLED_IN_BY_SERVER] = Policy()
    """Names of target topics."""
    delivery: Annotated[Delivery, FILLED_IN_BY_SERVER] = Delivery()
    """Guarantee about repeated records."""
    offsets: Annotated[Offsets, FILLED_IN_BY_SERVER] = Offsets()
    """Settings for the offsets of copies."""
    batch_verification: Annotated[BatchVerification, FILLED_IN_BY_SERVER] = (
        BatchVerification.SAMPLED
    )
    """Selection of unchanged or joined batches that are read back from the target and compared with
    the source. Sampled: one batch per second of each task, and one joined batch per second of each
    driver. Full: every batch. With Full, batches are not joined, and a task copies no faster than
    it compares. A difference stops the partition. The permission to read the copies is required."""
    start_from: Annotated[StartFrom, FILLED_IN_BY_SERVER] = StartFrom()
    """The first offset of a partition without progress."""
    bandwidth: Bandwidth | None = None
    """Limit of the rate at which the flow reads from the source. Default: unlimited."""
    tasks: Annotated[Tasks, FILLED_IN_BY_SERVER] = Tasks()
    """Division and assignment of the work."""
    discovery: Discovery = Discovery()
    """Intervals at which the source is polled."""
    topic_configs: Annotated[TopicConfigs, FILLED_IN_BY_SERVER] = TopicConfigs()
    """Settings of topics, copied from source to target."""
    topic_deletion: Annotated[TopicDeletion, FILLED_IN_BY_SERVER] = TopicDeletion()
    """Deletion of copies whose source topics were deleted."""
    acls: Annotated[Acls, FILLED_IN_BY_SERVER] = Acls()
    """ACLs of topics, copied from source to target."""
    checkpoints: Annotated[Checkpoints, FILLED_IN_BY_SERVER] = Checkpoints()
    """Positions of consumer groups, translated to the target."""
    heartbeats: Annotated[Heartbeats, FILLED_IN_BY_SERVER] = Heartbeats()
    """Heartbeats, in MirrorMaker 2's format."""
    offset_syncs: Annotated[OffsetSyncs, FILLED_IN_BY_SERVER] = OffsetSyncs()
    """Pairs of source and target offset, from which group positions are translated."""
    on_data_loss: Annotated[OnDataLoss, FILLED_IN_BY_SERVER] = OnDataLoss.FAIL
    """Action when records are lost on the source before they were copied, or on the target. Fail
    stops the partition, Restart copies it again from the earliest offset, Continue resumes after
    the lost records.
    """
    on_record_error: Annotated[OnRecordError, FILLED_IN_BY_SERVER] = OnRecordError()
    """Treatment of a record that the target rejects permanently."""
    drivers: Annotated[Drivers, FILLED_IN_BY_SERVER] = Drivers()
    """Processes that copy the data."""
    state: Annotated[FlowState, FILLED_IN_BY_SERVER] = FlowState.RUNNING
    """Desired state. Paused keeps the tasks and their connections. Stopped ends them."""
    source_watch: Annotated[SourceWatchSpec, FILLED_IN_BY_SERVER] = SourceWatchSpec()
    """Watch of the source after a planned fail-over."""
    paused_partitions: Annotated[tuple[PausedPartitions, ...], Field(max_length=1000)] = ()
    """Topics and partitions of the source that are temporarily not copied. They keep their
    positions. Records that the source's retention deletes during this time are lost."""

    rules = (
        Rule("self.source.alias == oldSelf.source.alias", _SAME_ALIAS, at="source.alias"),
        Rule("self.target.alias == oldSelf.target.alias", _SAME_ALIAS, at="target.alias"),
        *BETWEEN_CLUSTERS,
        *OFFSETS_RULES,
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        yield from breaches_between(self.source, self.target)
        yield from offsets_breaches(self)
        yield from copy_breaches(
            self.replication_policy.renames or {},
            self.topics.include,
            self.topics.exclude,
            self._taken(),
        )
        yield from self._dead_letter_breaches()

    def _dead_letter_breaches(self) -> Iterator[RuleViolation]:
        """Yield a breach if refused records would be written to a topic with another use.

        Only expressions that name a single topic are checked. For other expressions, discovery
        reports the conflict.
        """
        dead_letters = self.on_record_error.dead_letter_topic
        if dead_letters is None:
            return
        at = ("onRecordError", "deadLetterTopic")
        policy = self.replication_policy
        prefix = f"{self.source.alias}{policy.separator}" if policy.type == "Default" else ""
        copied = {f"{prefix}{name}": name for name in map(_unescaped, self.topics.include)}
        if is_internal(dead_letters) and dead_letters.endswith("internal"):
            yield RuleViolation(at, "must not be an internal topic of MirrorMaker 2 or headrace")
        elif dead_letters in (HEARTBEATS, f"{self.source.alias}{policy.separator}{HEARTBEATS}"):
            yield RuleViolation(at, "must not be a topic of heartbeats")
        elif policy.type in _POLICIES and dead_letters in copied.keys() - (policy.renames or {}):
            yield RuleViolation(at, f"must not be the copy of {copied[dead_letters]}")

    def _taken(self) -> dict[str, str]:
        """Names on the target that no renamed topic may have."""
        heartbeats = f"{self.source.alias}{self.replication_policy.separator}{HEARTBEATS}"
        found = {heartbeats: "the copy of the source's heartbeats", HEARTBEATS: "headrace's own"}
        dead_letters = self.on_record_error.dead_letter_topic
        return found | (
            {dead_letters: "spec.onRecordError.deadLetterTopic"} if dead_letters else {}
        )


_READ_AT_START: Final[Mapping[str, IncEx | bool]] = {
    "source": True,
    "target": True,
    "replication_policy": True,
    "delivery": {"mode"},
    "offsets": True,
    "record_filter": True,
    "headers": True,
}


def read_at_start(spec: ReplicationFlowSpec) -> dict[str, Any]:
    """Return the fields that a driver reads only at its start, without defaults.

    A change of one of them replaces the drivers. Defaults are left out because the API server
    writes some of them into the object.
    """
    return spec.model_dump(mode="json", include=dict(_READ_AT_START), exclude_defaults=True)


class ReplicationFlow(Model):
    """Continuous replication of topics from one Kafka cluster to another."""

    api_version: Literal["headrace.dev/v1beta1"] = API_VERSION
    """Version of the API."""
    kind: Literal["ReplicationFlow"] = "ReplicationFlow"
    """Kind of the object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    spec: ReplicationFlowSpec
    """Source, target, and settings of the copy."""
    status: ReplicationFlowStatus | None = None
    """Observed state, written by headrace."""

    def _breaches(self) -> Iterator[RuleViolation]:
        yield from object_name_breaches(self.metadata)
