"""ReplicationFlow, which copies topics of one cluster to another, with its status."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue
from pydantic.main import IncEx

from headrace.api.cluster import (
    BETWEEN_CLUSTERS,
    ClusterSpec,
    TargetClusterSpec,
    breaches_between,
)
from headrace.api.meta import API_VERSION, Conditions, ObjectMeta
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
    Text,
    Topic,
    Whole,
)
from headrace.api.offsets import OFFSETS_RULES, Offsets, StartFrom, offsets_breaches
from headrace.api.partitions import HEARTBEATS, PausedPartitions, is_internal
from headrace.api.pods import Drivers
from headrace.api.records import HeaderChanges, LostOffsets, RecordFilter
from headrace.api.source_watch import SourceWatchSpec, SourceWrites


class TaskCounts(Model):
    """Active tasks of a flow, by state."""

    total: Count = 0
    """All active tasks."""
    running: Count = 0
    """Tasks that copy data."""
    restoring: Count = 0
    """Tasks that are finding their offsets."""
    paused: Count = 0
    """Tasks that a user paused."""
    failed: Count = 0
    """Tasks that stopped with an error, including connectors, which total does not count."""


class Lag(Model):
    """How far the target is behind."""

    records: Count = 0
    """Records on the source that the target has not acknowledged."""
    seconds: Count = 0
    """Age of the oldest of them."""


class LastValid(Model):
    """The spec that is in force while the object's own spec is invalid."""

    generation: Count | None = None
    """The metadata.generation that it was written with."""
    spec: dict[str, JsonValue]
    """The spec, as a user wrote it."""


class ReplicationFlowStatus(Model):
    """Observed state of a flow."""

    observed_generation: Count | None = None
    """The metadata.generation that this status describes."""
    conditions: Conditions = ()
    """Ready, Reconciling, Stalled, DataLossDetected, ForeignWriter, PartitionsPaused,
    PartitionsReset, RecordsLeftOut, PartitionContested, TransactionHanging, TombstonesAtRisk,
    RecordsMayRepeat, ProgressNotStored, VerificationFailed, BandwidthUsedUp,
    RequirementsMissing, TopicDeletion, TopicConfigsRefused, AssignmentFailed,
    DriverUnresponsive, DriversAvailable, ReconciliationPaused, SourceStillWritten."""
    topics: Count | None = None
    """Topics that are copied."""
    partitions: Count | None = None
    """Partitions that are copied."""
    tasks: TaskCounts | None = None
    """Active tasks, by state."""
    lag: Lag | None = None
    """How far the target is behind. On Kubernetes written when it leaves its power of two. Absent
    while it is unknown for a task: the task is starting, its driver is lost, or the source has not
    answered fetches of a partition for the sum of fetch.max.wait.ms and request.timeout.ms, 30.5 s
    by default. The flow is then not Ready. The reason is SourceUnreachable if the source does not
    answer. Also absent while the flow is stopped."""
    bytes_per_second: Count | None = None
    """Bytes copied a second, as they are sent: compressed. It is the mean of 5 s, without tasks of
    lost drivers. On Kubernetes as exact as the lag. If the target does not acknowledge records of a
    partition for its request.timeout.ms, 30 s by default, the flow is not Ready, with reason
    TargetUnreachable."""
    ready_replicas: Count | None = None
    """Drivers that are alive: that renew their Leases, or send heartbeats."""
    lost_drivers: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()
    """Drivers that own units and are lost: they have not renewed their Leases, or sent heartbeats,
    for spec.drivers.leaseSeconds. If most drivers stop at once, the operator waits twice as long.
    The states and figures of their units are unknown and not counted."""
    desired_replicas: Count | None = None
    """Drivers that there should be: spec.drivers.replicas. For a stopped flow 0, or 1 while it
    watches its source."""
    selector: Text | None = None
    """Labels of the driver pods (scale subresource)."""
    replicas: Count | None = None
    """Driver pods there are (scale subresource)."""
    losses: Annotated[tuple[LostOffsets, ...], Field(max_length=100)] = ()
    """Lost records: those that stopped a partition, and others for a day; the latest hundred."""
    source_writes: Annotated[tuple[SourceWrites, ...], Field(max_length=100)] = ()
    """Writes to the source after a fail-over, as the watch found them: the hundred largest."""
    last_valid: LastValid | None = None
    """The last valid spec, which stays in force: present only while the flow's own is invalid."""


_OWN = "must not be heartbeats: these have a name of their own on the target"
_INTERNAL = (
    "must be no internal topic, such as those that begin with two underscores or a dot, and "
    "mm2*.internal"
)


def name_breaches(renames: Mapping[str, str]) -> Iterator[RuleViolation]:
    """Yield the breaches of single names, and of two topics with one name."""
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
    """Yield the breaches of names that the flow also gives to other topics.

    ``include`` and ``exclude`` select the topics that it copies. ``taken`` has names on the target
    and what they name.
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
                f"must be another name: the source's {renamed} is copied, too, and keeps its name; "
                "rename it, or exclude it in spec.topics",
            )


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
    """The guarantee about repetitions. Both modes read committed records only."""

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
    """Whether copies are deleted when their sources are."""

    DISABLED = "Disabled"
    DRY_RUN = "DryRun"
    ENABLED = "Enabled"


class RecordErrorAction(StrEnum):
    """The action for a record that the target refuses permanently."""

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
    """Regular expressions; a topic is copied when its whole name matches one, as
    with ["orders", "payments-.*"]. No default. Always copied: heartbeats, but not with offsets:
    Preserved. Never: names that begin with two underscores or a dot, internal topics of MirrorMaker
    2 and headrace (mm2*.internal, *.checkpoints.internal), and topics that came from the target, by
    their name."""
    exclude: Annotated[tuple[Regex, ...], Field(max_length=1000)] = (
        r"mm2.*\.internal",
        r".*\.replica",
        r"__.*",
    )
    """Regular expressions; a topic that matches one is not copied. Wins over include. A list takes
    the place of the default: repeat what of it you want to keep, as in [".*-tmp", "__.*"]."""


class Groups(Model):
    """Selection of the consumer groups that checkpoints follow."""

    include: Annotated[tuple[Regex, ...], Field(max_length=1000)] = (".*",)
    """Regular expressions; a group is followed when its whole name matches one."""
    exclude: Annotated[tuple[Regex, ...], Field(max_length=1000)] = (
        "console-consumer-.*",
        "connect-.*",
        "__.*",
    )
    """Regular expressions; a group that matches one is not followed. Wins over include."""


class Bandwidth(Model):
    """How fast a flow may read from the source."""

    bytes_per_second: Annotated[Whole, Field(ge=1024, le=1 << 40)]
    """Limit of all drivers together, of batches as the brokers send them: compressed, with headers.
    Each driver has a share of it, by its share of the source tasks. Unused shares are not given to
    other drivers."""


class Tasks(Model):
    """How the work is split and assigned."""

    max: Annotated[AtLeastOne, FILLED_IN_BY_SERVER] = 8
    """Maximum number of source tasks; also the maximum number of checkpoint tasks."""
    standbys: Annotated[Count, FILLED_IN_BY_SERVER] = 0
    """Other drivers that keep a task restored, ready to take over."""
    assignor: Annotated[AssignorName, FILLED_IN_BY_SERVER] = "sticky"
    """The assignor: sticky, round-robin, cooperative, or a plug-in's name (entry point
    headrace.assignors)."""
    movement_budget: Share = 0.1
    """Largest share of the flow's units, and of its partitions, that one round moves for balance.
    There is at most one such round a minute. Units without an owner never count.
    """


class Discovery(Model):
    """How often the source is polled."""

    topics_seconds: AtLeastOne = 10
    """Seconds between polls for new topics and partitions. MirrorMaker 2: 600."""
    groups_seconds: AtLeastOne = 10
    """Seconds between polls for new consumer groups. MirrorMaker 2: 600."""


class TopicConfigs(Model):
    """Settings of topics, copied from source to target."""

    enabled: Annotated[Flag, FILLED_IN_BY_SERVER] = True
    """Keep the settings of target topics like those that are set on their sources: what differs is
    written again. A broker's defaults are not copied, and what is set on the target only stays."""
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
    """Regular expressions; settings that are not copied."""


class TopicDeletion(Model):
    """Copies whose sources were deleted."""

    mode: Annotated[TopicDeletionMode, FILLED_IN_BY_SERVER] = TopicDeletionMode.DISABLED
    """DryRun: the condition TopicDeletion names copies that Enabled would delete. Either remembers
    from then on which copies the flow has made; others are never deleted, nor one that was failed
    over, that a consumer group reads, or while the source does not answer."""
    delay_seconds: AtLeastOne = 3600
    """How long the topic must be missing on the source before its copy can be deleted, in seconds.
    """
    max_topics: AtLeastOne = 5
    """Maximum number of copies to delete at once. If more are due, none is deleted, and the
    condition has the reason.
    """


class Acls(Model):
    """ACLs of topics, copied from source to target."""

    enabled: Annotated[Flag, FILLED_IN_BY_SERVER] = False
    """Keep read permissions on target topics like those on their sources. A copy gets what ACLs
    that name its source allow, with All as Read, and what any ACL denies. Only ACLs that were added
    by the flow are removed.
    """
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
    """Write them on the source too, where MirrorClient's upstreamClusters() reads them; false
    for a read-only source."""


class OffsetSyncs(Model):
    """Pairs of source and target offset, from which group positions are translated."""

    location: Annotated[Location, FILLED_IN_BY_SERVER] = Location.TARGET
    """Cluster that stores them. Source is MirrorMaker 2's default, and needs write access there."""


_DEAD_LETTER_TOPIC = OnlyWith("deadLetterTopic", "action", RecordErrorAction.DEAD_LETTER)
_RENAMES = OnlyWith("renames", "type", "RenameMap")
_SAME_ALIAS = "is immutable: topics and MirrorMaker 2's records bear it; make another flow instead"


class Delivery(Model):
    """The guarantee about repetitions."""

    mode: Annotated[DeliveryMode, FILLED_IN_BY_SERVER] = DeliveryMode.AT_LEAST_ONCE
    """ExactlyOnce copies in transactions of the target, which contain data and progress: a consumer
    of committed records gets each record once. With AtLeastOnce a failure may repeat some records,
    and no consumer waits for a commit. Both read committed records only (MirrorMaker 2 copies
    aborted ones by default)."""
    commit_interval_ms: Annotated[Whole, Field(ge=10, le=30_000)] = 1000
    """With mode: ExactlyOnce: how long a task copies before it commits, which is when consumers of
    committed records get the records. A task commits earlier after 64 MiB, and when the source has
    no more records."""


class OnRecordError(Model):
    """Treatment of a record that the target rejects permanently."""

    action: Annotated[RecordErrorAction, FILLED_IN_BY_SERVER] = RecordErrorAction.FAIL
    """Action when the target rejects a record for its content (its size, its timestamp, a rule of
    the broker). Fail stops the partition, DeadLetter writes the record to deadLetterTopic, Skip
    skips it. Both are counted.
    """
    dead_letter_topic: Topic | None = None
    """With action: DeadLetter: the target topic for refused records, with Kafka Connect's headers.
    It is created with one partition if it is absent."""

    rules = _DEAD_LETTER_TOPIC.rules

    def _breaches(self) -> Iterator[RuleViolation]:
        yield from _DEAD_LETTER_TOPIC.breaches(self.dead_letter_topic, self.action)


class Policy(Model):
    """How target topics are named."""

    type: Annotated[PolicyType, FILLED_IN_BY_SERVER] = "Default"
    """Default puts the source's alias before the name, Identity keeps the name, RenameMap gives the
    names of renames; or the name of a plug-in (entry point headrace.policies)."""
    separator: Separator = "."
    """Separator between alias and name, for the Default policy."""
    renames: Annotated[dict[Topic, Topic], Field(min_length=1, max_length=500)] | None = None
    """With RenameMap: names on the target, by names on the source, as with {orders: sales.orders}.
    Topics that it does not have keep their names."""

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
    """The cluster that is read."""
    target: TargetClusterSpec
    """The cluster that is written."""
    topics: Topics
    """Selection of the topics to copy."""
    record_filter: RecordFilter | None = None
    """Filter of the copied records. Without it, all records are copied. A record that is not
    copied counts as copied: a group that has committed before such a record resumes at the next
    copied one. A change applies to records that are copied afterwards."""
    headers: HeaderChanges | None = None
    """Headers to add to copied records, and headers to remove. A change applies to records that are
    copied afterwards."""
    groups: Groups = Groups()
    """Selection of the consumer groups that checkpoints follow."""
    replication_policy: Annotated[Policy, FILLED_IN_BY_SERVER] = Policy()
    """How target topics are named."""
    delivery: Annotated[Delivery, FILLED_IN_BY_SERVER] = Delivery()
    """The guarantee about repetitions."""
    offsets: Annotated[Offsets, FILLED_IN_BY_SERVER] = Offsets()
    """The offsets of the copies."""
    batch_verification: Annotated[BatchVerification, FILLED_IN_BY_SERVER] = (
        BatchVerification.SAMPLED
    )
    """Selection of unchanged or joined batches that are read back from the target and compared with
    the source. Sampled: one a second of each task, and one a second of each driver after joining.
    Full: every batch; none is joined, and a task copies no faster than it compares. A difference
    stops the partition. The permission to read the copies is required.
    """
    start_from: Annotated[StartFrom, FILLED_IN_BY_SERVER] = StartFrom()
    """The first offset of a partition without progress."""
    bandwidth: Bandwidth | None = None
    """A limit, so that copying leaves a network to others. Without it, as fast as can be."""
    tasks: Annotated[Tasks, FILLED_IN_BY_SERVER] = Tasks()
    """How the work is split and assigned."""
    discovery: Discovery = Discovery()
    """How often the source is polled."""
    topic_configs: Annotated[TopicConfigs, FILLED_IN_BY_SERVER] = TopicConfigs()
    """Settings of topics, copied from source to target."""
    topic_deletion: Annotated[TopicDeletion, FILLED_IN_BY_SERVER] = TopicDeletion()
    """Copies whose sources were deleted."""
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
    """The processes that copy the data."""
    state: Annotated[FlowState, FILLED_IN_BY_SERVER] = FlowState.RUNNING
    """Desired state. Paused keeps the tasks and their connections; Stopped ends them."""
    source_watch: Annotated[SourceWatchSpec, FILLED_IN_BY_SERVER] = SourceWatchSpec()
    """Watch of the source after a planned fail-over."""
    paused_partitions: Annotated[tuple[PausedPartitions, ...], Field(max_length=1000)] = ()
    """Topics and partitions of the source that are not copied for now; they keep their positions.
    What the source's retention deletes meanwhile is lost."""

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
    """Copies topics of one Kafka cluster to another for as long as it exists."""

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
