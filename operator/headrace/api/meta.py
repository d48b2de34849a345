"""Parts that every object has besides its spec: metadata and conditions, as in Kubernetes."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, JsonValue

from headrace.api.model import (
    BY_TYPE,
    REQUIRED_BY_SERVER,
    Count,
    Label,
    Model,
    Name,
    RuleViolation,
    Timestamp,
)

API_VERSION: Final = "headrace.dev/v1beta1"
MAX_NAME_LENGTH: Final = 52
"""Maximum length of a name that a user gives. With a suffix such as ``-producer`` it must be a
valid label value and a valid Job name, which have at most 63 characters. CronJob has the same
limit.
"""


class ObjectMeta(Model):
    """Kubernetes' metadata. Standalone flows use only the name."""

    name: Name
    """Name of the object: a DNS subdomain that is unique for its kind in the namespace. The name of
    a flow or a test has at most 52 characters."""
    namespace: Label = "default"
    """Namespace of the object."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, by which objects are selected."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations, for tools and users."""
    uid: str | None = None
    """Unique identity of this object, written by the API server."""
    resource_version: str | None = None
    """Version of the object's state, written by the API server."""
    generation: Count | None = None
    """Number of changes of the spec, written by the API server."""
    creation_timestamp: Timestamp | None = None
    """Time of the object's creation, written by the API server."""
    deletion_timestamp: Timestamp | None = None
    """Time at which the object is deleted, written by the API server."""
    deletion_grace_period_seconds: Count | None = None
    """Seconds that a deletion may take, written by the API server."""
    finalizers: tuple[str, ...] = ()
    """Controllers that must clean up before the object is deleted."""
    owner_references: tuple[dict[str, JsonValue], ...] = ()
    """Objects whose deletion deletes this one."""
    managed_fields: tuple[dict[str, JsonValue], ...] = ()
    """Managers of the fields, recorded by the API server."""


def name_breaches(metadata: ObjectMeta) -> Iterator[RuleViolation]:
    """Yield the reasons why children cannot be named after the object."""
    if len(metadata.name) > MAX_NAME_LENGTH:
        yield RuleViolation(
            ("metadata", "name"),
            f"must have at most {MAX_NAME_LENGTH} characters: what belongs to it is named after it",
        )


class ConditionType(StrEnum):
    """Subject of a condition."""

    READY = "Ready"
    """The spec is fulfilled, and nothing has failed."""
    RECONCILING = "Reconciling"
    """headrace works towards the spec."""
    STALLED = "Stalled"
    """The flow waits until a user changes something."""
    DATA_LOSS_DETECTED = "DataLossDetected"
    """Records were deleted on the source before they were copied, or on the target afterwards."""
    FOREIGN_WRITER = "ForeignWriter"
    """Another producer writes to a target topic of this flow."""
    RECORDS_LEFT_OUT = "RecordsLeftOut"
    """The target refused records: they were skipped, or written to the dead-letter topic."""
    PARTITION_CONTESTED = "PartitionContested"
    """Another flow, or another run of this flow, also copies partitions of this flow."""
    TRANSACTION_HANGING = "TransactionHanging"
    """A transaction on the source stays open. Records after its first record cannot be copied."""
    TOMBSTONES_AT_RISK = "TombstonesAtRisk"
    """A compacted topic may have dropped deletions before they were copied."""
    RECORDS_MAY_REPEAT = "RecordsMayRepeat"
    """An earlier owner could not be fenced, or records were copied again."""
    PROGRESS_NOT_STORED = "ProgressNotStored"
    """The target has not stored progress for some time. Copied records may be repeated."""
    VERIFICATION_FAILED = "VerificationFailed"
    """A joined batch had other records than its parts. Other joined batches may also be wrong."""
    BANDWIDTH_USED_UP = "BandwidthUsedUp"
    """Reads wait for spec.bandwidth, for at least half of the last 10 s."""
    ASSIGNMENT_FAILED = "AssignmentFailed"
    """The assignor failed. The previous assignment stays in force."""
    DRIVER_UNRESPONSIVE = "DriverUnresponsive"
    """A live driver did not release units in time, and the operator took them from it."""
    DRIVERS_AVAILABLE = "DriversAvailable"
    """On Kubernetes: as many drivers are alive as the spec asks for."""
    RECONCILIATION_PAUSED = "ReconciliationPaused"
    """On Kubernetes: an annotation keeps the operator from changing what the flow owns."""
    ROLLOUT_STUCK = "RolloutStuck"
    """On Kubernetes: new driver pods do not become ready, and the old ones stay."""
    OBJECTS_CONTESTED = "ObjectsContested"
    """On Kubernetes: another manager changes objects of the flow again and again."""
    PARTITIONS_PAUSED = "PartitionsPaused"
    """Partitions of the source are not copied, because spec.pausedPartitions names them."""
    PARTITIONS_RESET = "PartitionsReset"
    """Partitions were copied again from spec.startFrom, as the annotation headrace.dev/reset
    requires. False if the annotation requires something impossible."""
    REQUIREMENTS_MISSING = "RequirementsMissing"
    """Permissions or settings that the flow needs are missing; headrace check lists them."""
    TOPIC_DELETION = "TopicDeletion"
    """With spec.topicDeletion: copies whose sources were deleted, and their treatment."""
    TOPIC_CONFIGS_REFUSED = "TopicConfigsRefused"
    """With spec.topicConfigs: the target refuses settings of topics, which therefore differ."""
    SOURCE_STILL_WRITTEN = "SourceStillWritten"
    """A producer still writes to the source after a planned fail-over. These records are not
    copied."""
    CAUGHT_UP = "CaughtUp"
    """All records that were on the source when the task began are on the target."""


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Reason for the status of a condition."""

    RUNNING = "Running"
    """Every task runs."""
    STARTING = "Starting"
    """Tasks are being created, placed or restored."""
    TASK_FAILED = "TaskFailed"
    """At least one task failed. Its lastError has the reason."""
    NO_DRIVERS = "NoDrivers"
    """There is no driver to run the tasks."""
    DRIVERS_ALIVE = "DriversAlive"
    """Every driver that the spec asks for is alive."""
    DRIVERS_MISSING = "DriversMissing"
    """Fewer drivers are alive than the spec asks for."""
    NOT_PLACED = "NotPlaced"
    """The assignor failed. The message names it and the error."""
    REVOKE_NOT_ACKNOWLEDGED = "RevokeNotAcknowledged"
    """The message names the drivers, and the units that were taken from them."""
    STOPPED = "Stopped"
    """The flow is stopped, as spec.state asks."""
    STOPPING = "Stopping"
    """The flow is stopping, and drivers release their units."""
    INVALID_SPEC = "InvalidSpec"
    """The operator cannot parse the object, or cannot fulfil its spec on Kubernetes. The message
    names the field."""
    FORBIDDEN = "Forbidden"
    """The operator lacks a permission. The message names it."""
    REFUSED = "Refused"
    """The API server refuses an object that the flow needs. The message is the API server's."""
    NOT_APPLIED = "NotApplied"
    """The operator failed three times in a row to apply an object that the flow needs. It retries,
    and continues to assign units."""
    NAME_TAKEN = "NameTaken"
    """An object that the flow or the test needs already exists and has another owner."""
    PODS_NOT_READY = "PodsNotReady"
    """New driver pods do not become ready. The message names one of them and the reason."""
    CHANGED_AGAIN = "ChangedAgain"
    """Another manager repeats changes that the operator reverts. The message names it."""
    RECONCILIATION_PAUSED = "ReconciliationPaused"
    """An annotation keeps the operator from changing what the flow owns."""
    NO_TOPIC_MATCHES = "NoTopicMatches"
    """No topic of the source matches spec.topics."""
    SOURCE_UNREACHABLE = "SourceUnreachable"
    """The source cluster does not respond, or does not respond about some partitions."""
    TARGET_UNREACHABLE = "TargetUnreachable"
    """The target cluster does not respond, or does not acknowledge records of some partitions."""
    THROTTLED = "Throttled"
    """A quota of the brokers delays data that the flow reads at its start. The message has the
    progress."""
    SECRET_MISSING = "SecretMissing"
    """A Secret that the flow names, or a key of it, does not exist. The flow recovers when it is
    created."""
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    """Brokers refuse the user name, password or mechanism. The flow recovers when they accept
    them."""
    TLS_FAILED = "TlsFailed"
    """Encrypted connections fail, because a certificate is untrusted, invalid or unexpected."""
    SAME_CLUSTER = "SameCluster"
    """Source and target are one cluster."""
    TARGET_TOPIC_TAKEN = "TargetTopicTaken"
    """Another flow writes one of the target topics."""
    REPLICATION_LOOP = "ReplicationLoop"
    """Another flow copies topics of this one back, and this one would copy them again."""
    TARGET_PARTITIONS_TOO_FEW = "TargetPartitionsTooFew"
    """A target topic has fewer partitions than its source and could not be extended, or the
    dead-letter topic could not be created."""
    DATA_LOST = "DataLost"
    """The message names the lost offsets."""
    FAILED_OVER = "FailedOver"
    """The flow was failed over and must not run. The message names the commands that undo or
    reverse it."""
    PARTITION_STOPPED = "PartitionStopped"
    """A partition is stopped by a permanent error. Other partitions are copied."""
    UNEXPECTED_OFFSET = "UnexpectedOffset"
    """An acknowledged offset was not the expected one, because of another writer or a late
    duplicate."""
    PAUSED_BY_SPEC = "PausedBySpec"
    """The message names the partitions that spec.pausedPartitions pauses."""
    BANDWIDTH_LIMIT = "BandwidthLimit"
    """The message has the flow's spec.bandwidth.bytesPerSecond."""
    RESET_BY_ANNOTATION = "ResetByAnnotation"
    """The message names the partitions that were reset."""
    INVALID_ANNOTATION = "InvalidAnnotation"
    """The message names an annotation of headrace whose value is ignored."""
    INVALID_RESET = "InvalidReset"
    """The annotation headrace.dev/reset cannot be read, or names nothing that the flow copies."""
    RECORD_REFUSED = "RecordRefused"
    """The message names the last record, and the reason why the target refuses it."""
    TRANSACTION_OPEN = "TransactionOpen"
    """The message names partitions, the offset at which they wait, and the time since when."""
    PROGRESS_TOO_OLD = "ProgressTooOld"
    """The message names partitions, and the time since when they were not copied."""
    TAKE_OVER_NOT_PROVED = "TakeOverNotProved"
    """The message names partitions, and the reason why their records may be on the target twice."""
    HELPER_FAULTY = "HelperFaulty"
    """The helper for small batches created a wrong batch, and is no longer used."""
    NOT_ACKNOWLEDGED = "NotAcknowledged"
    """The message has the time since when records are not acknowledged."""
    TAKEN_AGAIN = "TakenAgain"
    """The message names partitions that another owner took repeatedly, and that owner."""
    CHECK_FAILED = "CheckFailed"
    """The message names permissions and settings, as headrace check does."""
    SETTING_REFUSED = "SettingRefused"
    """The message names each setting that the target refuses, and the reason."""
    DELETION_PENDING = "DeletionPending"
    """The message names copies whose sources were deleted. They are deleted after the delay."""
    DELETION_DRY_RUN = "DeletionDryRun"
    """The message names copies that would be deleted with spec.topicDeletion.mode: Enabled."""
    DELETION_REFUSED = "DeletionRefused"
    """The message names copies that are not deleted, and the reason."""
    COPIES_DELETED = "CopiesDeleted"
    """The message names copies that were deleted within the last hour."""
    CATCHING_UP = "CatchingUp"
    """Some records that were on the source when the task began are not on the target yet."""
    CAUGHT_UP = "CaughtUp"
    """All records that were on the source when the task began are on the target."""
    WAITING_FOR_FLOW = "WaitingForFlow"
    """The flow under test does not exist, or is not Ready yet."""
    TEST_RUNNING = "TestRunning"
    """A mirror test is in progress."""
    TEST_PASSED = "TestPassed"
    """All messages arrived, within the budgets."""
    TEST_FAILED = "TestFailed"
    """The test exceeded a budget. The counts and the report have the details."""
    TEST_INCONCLUSIVE = "TestInconclusive"
    """The test could not be completed, and has no result about the mirror."""
    UNSCHEDULABLE = "Unschedulable"
    """A pod of a mirror test fits on no node. The message has its resource requests."""
    IMAGE_NOT_PULLED = "ImageNotPulled"
    """The image of a mirror test's pods cannot be pulled."""
    OUT_OF_MEMORY = "OutOfMemory"
    """A pod of a mirror test used more memory than spec.spark allows."""
    EVICTED = "Evicted"
    """A node evicted a pod of a mirror test because of a lack of resources."""
    POD_FAILED = "PodFailed"
    """A pod of a mirror test does not start, or ended with an error. The message has the reason."""
    SCHEDULED = "Scheduled"
    """The next run starts at the time that the message names."""
    SUSPENDED = "Suspended"
    """No further runs start while spec.suspend is true."""
    WRITTEN_AFTER_FAIL_OVER = "WrittenAfterFailOver"
    """The message names partitions, numbers of offsets, the time of the first write, and the
    producers."""
    REVERSE_FLOW_RUNS = "ReverseFlowRuns"
    """A flow copies from the target into topics of the source, so the watch of the source has
    ended."""

    @classmethod
    def _missing_(cls, value: object) -> "Reason | None":
        """Accept a reason that another version wrote. The condition's message explains it."""
        if not isinstance(value, str):
            return None
        other = str.__new__(cls, value)
        other._name_ = other._value_ = value
        return other


MAX_MESSAGE_LENGTH: Final = 4096
"""Maximum number of characters of a condition's message, so that an object stays small."""


class Condition(Model):
    """One observation about an object (Kubernetes' metav1.Condition)."""

    type: ConditionType
    """Subject of the condition."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Reason
    """Reason for the status as one word, for programs."""
    message: str = ""
    """Message for users: the problem, and the action to take."""
    last_transition_time: Annotated[Timestamp | None, REQUIRED_BY_SERVER] = None
    """Time of the last change of the status."""
    observed_generation: Count | None = None
    """The metadata.generation that the condition describes."""


def _ours(conditions: Any) -> Any:
    if not isinstance(conditions, list):
        return conditions
    types = set(ConditionType)
    return [c for c in conditions if not isinstance(c, dict) or c.get("type") in types]


Conditions = Annotated[tuple[Condition, ...], Field(max_length=64), BeforeValidator(_ours), BY_TYPE]
"""Conditions, one for each type. On Kubernetes, tools may add their own, which headrace does not
read."""
