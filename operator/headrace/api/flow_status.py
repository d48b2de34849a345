"""Status of a ReplicationFlow."""

from typing import Annotated

from pydantic import Field, JsonValue

from headrace.api.meta import Conditions
from headrace.api.model import Count, Model, Text
from headrace.api.records import LostOffsets
from headrace.api.source_watch import SourceWrites


class TaskCounts(Model):
    """Active tasks of a flow, by state."""

    total: Count = 0
    """All active tasks."""
    running: Count = 0
    """Tasks that copy data."""
    restoring: Count = 0
    """Tasks that are finding their offsets."""
    paused: Count = 0
    """Tasks that a user has paused."""
    failed: Count = 0
    """Tasks that stopped with an error, including connectors, which total does not count."""


class Lag(Model):
    """Lag of the target."""

    records: Count = 0
    """Records on the source that the target has not acknowledged."""
    seconds: Count = 0
    """Age of the oldest of these records, in seconds."""


class LastValid(Model):
    """The spec that is in force while the object's own spec is invalid."""

    generation: Count | None = None
    """The metadata.generation of that spec."""
    spec: dict[str, JsonValue]
    """The spec as the user wrote it."""


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
    """Lag of the target. On Kubernetes it is written when it crosses a power of two. It is
    absent while the flow is stopped, and while it is unknown for a task. That is so if the task is
    starting, if its driver is lost, or if the source has not answered fetches of a partition for
    the sum of fetch.max.wait.ms and request.timeout.ms (30.5 s by default). The flow is then not
    Ready. If the source does not answer, the reason is SourceUnreachable."""
    bytes_per_second: Count | None = None
    """Bytes copied per second, compressed as they are sent. It is the mean of 5 s, without tasks of
    lost drivers. On Kubernetes it is written when it crosses a power of two. If the target does
    not acknowledge records of a partition for its request.timeout.ms (30 s by default), the flow is
    not Ready, with reason TargetUnreachable."""
    ready_replicas: Count | None = None
    """Number of live drivers, which renew their Leases or send heartbeats."""
    lost_drivers: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()
    """Lost drivers that own units. They have not renewed their Leases, or sent heartbeats, for
    spec.drivers.leaseSeconds. If most drivers stop at once, the operator waits twice as long. The
    states and metrics of their units are unknown and not counted."""
    desired_replicas: Count | None = None
    """Desired number of drivers: spec.drivers.replicas. It is 0 for a stopped flow, or 1 while the
    flow watches its source."""
    selector: Text | None = None
    """Labels of the driver pods (scale subresource)."""
    replicas: Count | None = None
    """Number of driver pods (scale subresource)."""
    losses: Annotated[tuple[LostOffsets, ...], Field(max_length=100)] = ()
    """Lost records, at most the latest hundred. A loss that did not stop its partition is listed
    for a day."""
    source_writes: Annotated[tuple[SourceWrites, ...], Field(max_length=100)] = ()
    """Writes to the source after a fail-over that the watch has found, at most the hundred
    largest."""
    last_valid: LastValid | None = None
    """The last valid spec, which stays in force. It is present only while the flow's own spec is
    invalid."""
