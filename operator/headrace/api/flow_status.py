"""The status of a flow."""

from typing import Annotated

from pydantic import Field, JsonValue

from headrace.api.losses import LostOffsets
from headrace.api.meta import Conditions
from headrace.api.model import Count, Model, Text


class TaskCounts(Model):
    """Active tasks of a flow, by state."""

    total: Count = 0
    """All of them."""
    running: Count = 0
    """Those that carry data."""
    restoring: Count = 0
    """Those that are finding their positions."""
    paused: Count = 0
    """Those that a user paused."""
    failed: Count = 0
    """Those that stopped with an error; connectors too, which total does not count."""


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
    """What headrace sees of a flow."""

    observed_generation: Count | None = None
    """The metadata.generation that this status describes."""
    conditions: Conditions = ()
    """Ready, Reconciling, Stalled, DataLossDetected, ForeignWriter, PartitionsPaused,
    PartitionsReset, RecordsLeftOut, PartitionContested, TransactionHanging, TombstonesAtRisk,
    RecordsMayRepeat, ProgressNotStored, VerificationFailed, BandwidthUsedUp,
    RequirementsMissing, TopicDeletion, TopicConfigsRefused, AssignmentFailed,
    DriverUnresponsive, DriversAvailable, ReconciliationPaused."""
    topics: Count | None = None
    """Topics that are copied."""
    partitions: Count | None = None
    """Partitions that are copied."""
    tasks: TaskCounts | None = None
    """Active tasks, by state."""
    lag: Lag | None = None
    """How far the target is behind. On Kubernetes written when it leaves its power of two."""
    bytes_per_second: Count | None = None
    """Bytes copied a second, as they are sent: compressed. On Kubernetes as exact as the lag."""
    ready_replicas: Count | None = None
    """Drivers that are alive: that renew their Leases, or send heartbeats."""
    desired_replicas: Count | None = None
    """Drivers that there should be: spec.drivers.replicas, or 0 of a flow that is stopped."""
    selector: Text | None = None
    """Labels of the driver pods (scale subresource)."""
    replicas: Count | None = None
    """Driver pods there are (scale subresource)."""
    losses: Annotated[tuple[LostOffsets, ...], Field(max_length=100)] = ()
    """Lost records: those that stopped a partition, and others for a day; the latest hundred."""
    last_valid: LastValid | None = None
    """The last valid spec, which stays in force: present only while the flow's own is invalid."""
