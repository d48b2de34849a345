"""ReplicationTask: one unit of work of a flow. Only headrace writes it; users read it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from headrace.api.flow import FlowState, ReplicationFlow
from headrace.api.flow_status import Lag
from headrace.api.meta import API_VERSION, Conditions, ConditionType, ObjectMeta, Reason
from headrace.api.model import Count, Model, Name, Rule, Text, Timestamp, dump
from headrace.api.partitions import TopicPartition, TopicPartitions, parse_ranges
from headrace.api.records import LostOffsets
from headrace.api.source_watch import SourceWrites


class TaskType(StrEnum):
    """Type of a unit: a connector, or a task of one."""

    SOURCE_CONNECTOR = "SourceConnector"
    CHECKPOINT_CONNECTOR = "CheckpointConnector"
    HEARTBEAT_CONNECTOR = "HeartbeatConnector"
    SOURCE_TASK = "SourceTask"
    CHECKPOINT_TASK = "CheckpointTask"
    HEARTBEAT_TASK = "HeartbeatTask"
    SOURCE_WATCH = "SourceWatch"

    @property
    def is_connector(self) -> bool:
        """True for a connector, which polls the source and writes the tasks of its type."""
        return self.value.endswith("Connector")


Work = TopicPartitions | str
"""Work of a source task (partitions of a topic) or of a checkpoint task (a consumer group)."""


def dump_work(work: Work) -> dict[str, Any] | str:
    """Return a task's work as JSON."""
    return work if isinstance(work, str) else dump(work)


def load_work(work: dict[str, Any] | str) -> Work:
    """Return a task's work from JSON."""
    return work if isinstance(work, str) else TopicPartitions.model_validate(work)


class TaskPhase(StrEnum):
    """State of a unit as its owner reports it."""

    CREATED = "Created"
    RESTORING = "Restoring"
    RUNNING = "Running"
    PAUSED = "Paused"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    CLOSED = "Closed"


_IDENTITY: Final = "is immutable: it says which unit this is"


class ReplicationTaskSpec(Model):
    """Work of the unit (written by its connector) and its owner (written by the operator)."""

    flow_name: Name
    """Name of the flow."""
    type: TaskType
    """Type of the unit."""
    index: Count = 0
    """Number of the task among the tasks of its type; 0 for a connector."""
    partitions: Annotated[tuple[TopicPartitions, ...], Field(max_length=10000)] = ()
    """Partitions of the source that a source task copies."""
    task_count: Count = 0
    """Number of the flow's tasks of this type; 0 if unknown. The task uses this number to compute
    its share of spec.bandwidth.
    """
    groups: Annotated[tuple[Text, ...], Field(max_length=10000)] = ()
    """Consumer groups that a checkpoint task follows."""
    driver_name: Text = ""
    """Driver that must run the unit. Only the operator writes it, as a scheduler writes
    nodeName."""
    standby_driver_names: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    """Drivers that keep a copy of the unit's state and are ready to take over."""
    lost_incarnation: Text = ""
    """Incarnation of the last owner that the operator declared lost. It is written with an
    assignment."""
    connector_epoch: Count = 0
    """Epoch of the connector that wrote the split. It never decreases."""

    @property
    def work(self) -> tuple[Work, ...]:
        """Work that the unit's connector assigned to it."""
        return self.groups if self.type is TaskType.CHECKPOINT_TASK else self.partitions

    @staticmethod
    def of_work(type: TaskType, work: Iterable[Work]) -> dict[str, tuple[Work, ...]]:
        """Return the field, in Python's spelling, that contains the work of a task of this type."""
        name = "groups" if type is TaskType.CHECKPOINT_TASK else "partitions"
        return {name: tuple(work)}

    rules = (
        Rule("self.flowName == oldSelf.flowName", _IDENTITY, at="flowName"),
        Rule("self.type == oldSelf.type", _IDENTITY, at="type"),
        Rule("self.?index.orValue(0) == oldSelf.?index.orValue(0)", _IDENTITY, at="index"),
        # A connector that was declared lost may still write. Its split must not replace a new one.
        Rule(
            "self.?connectorEpoch.orValue(0) >= oldSelf.?connectorEpoch.orValue(0)",
            "must not fall or go: a connector with a higher epoch wrote this split",
            at="connectorEpoch",
        ),
    )


class TaskError(Model):
    """The last error of a unit."""

    reason: Text
    """Reason as one word, for programs."""
    message: Annotated[str, Field(max_length=4096)]
    """Message that names the operation, its object, and the action to take."""
    time: Timestamp
    """Time of the error."""


_OfTopic = Annotated[str, Field(max_length=16640)]


class RackPartitions(Model):
    """Partitions that can be read within one rack."""

    rack: Annotated[Text, Field(min_length=1)]
    """Name of the rack (broker.rack), such as an availability zone."""
    # Text, because TopicPartitions has a CEL rule, and 64 x 10,000 items exceed CEL's budget.
    partitions: Annotated[tuple[_OfTopic, ...], Field(max_length=10000)] = ()
    """Partitions of the source that a broker in the rack serves to consumers, like orders/0-3,7."""

    @classmethod
    def pack(cls, rack: str, partitions: Iterable[TopicPartition]) -> "RackPartitions":
        """Return these partitions, by topic."""
        packed = TopicPartitions.pack(partitions)
        return cls(rack=rack, partitions=tuple(f"{one.topic}/{one.partitions}" for one in packed))

    def unpack(self) -> frozenset[TopicPartition]:
        """Return the partitions that ``pack`` packed, each once."""
        return frozenset(
            TopicPartition(topic, number)
            for topic, _, ranges in (text.partition("/") for text in self.partitions)
            for number in parse_ranges(ranges)
        )


class ReplicationTaskStatus(Model):
    """Report of the owner. If driverName is empty, the unit has no owner."""

    driver_name: Text = ""
    """The driver that owns the unit."""
    driver_incarnation: Text = ""
    """Incarnation of that driver. A restarted process has a new one."""
    epoch: Count = 0
    """Number of the current claim. Each claim has a higher number than all earlier ones."""
    phase: TaskPhase | None = None
    """State of the unit."""
    partitions: Annotated[tuple[TopicPartitions, ...], Field(max_length=10000)] = ()
    """Partitions that the task owns."""
    racks: Annotated[tuple[RackPartitions, ...], Field(max_length=64)] = ()
    """Partitions of the flow that can be read within each rack. Only a source connector reports
    them. Empty if its driver or the brokers have no racks."""
    lag: Lag | None = None
    """Lag of the target. On Kubernetes, this field and bytesPerSecond are written when they cross a
    power of two."""
    bytes_per_second: Count | None = None
    """Bytes copied per second, compressed as they are sent."""
    skipped_records: Count | None = None
    """Records that the target refused and that were skipped since the task was created."""
    dead_lettered_records: Count | None = None
    """Records that the target refused and that were written to the dead-letter topic since the task
    was created."""
    restarts: Count = 0
    """Restarts after errors."""
    last_error: TaskError | None = None
    """Last error of the unit."""
    observed_generation: Count | None = None
    """The metadata.generation that this status describes."""
    conditions: Conditions = ()
    """Observations about the unit."""
    losses: Annotated[tuple[LostOffsets, ...], Field(max_length=100)] = ()
    """Lost records of the partitions. A loss that did not stop its partition is listed for a
    day."""
    source_writes: Annotated[tuple[SourceWrites, ...], Field(max_length=100)] = ()
    """Writes to the source after the fail-over, largest first. Only a source watch reports them."""


_EPOCH: Final = "self.?status.epoch.orValue(0)"
_OLD_EPOCH: Final = "oldSelf.?status.epoch.orValue(0)"


class ReplicationTask(Model):
    """A connector or task of a flow, with its work, driver and lag."""

    api_version: Literal["headrace.dev/v1beta1"] = API_VERSION
    """Version of the API."""
    kind: Literal["ReplicationTask"] = "ReplicationTask"
    """Kind of the object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    spec: ReplicationTaskSpec
    """Work and owner of the unit."""
    status: ReplicationTaskStatus = ReplicationTaskStatus()
    """Report of the owner."""

    # A rule of the object and not of its status: a rule of the status does not apply when the
    # status is removed.
    rules = (
        Rule(
            f"{_EPOCH} >= {_OLD_EPOCH}",
            "epoch must not fall or go: it says which of two holders came later",
            at="status",
        ),
        *(
            Rule(
                f"self.?status.{field}.orValue('') in ['', oldSelf.?status.{field}.orValue('')]"
                f" || {_EPOCH} > {_OLD_EPOCH}",
                f"{field} must not appear or change without a higher epoch: claim the unit first",
                at="status",
            )
            for field in ("driverName", "driverIncarnation")
        ),
    )


def wants_watch(flow: ReplicationFlow) -> bool:
    """Return True if the flow needs a unit that watches its source."""
    return flow.spec.state is FlowState.STOPPED and flow.spec.source_watch.enabled


def watches_source(flow: ReplicationFlow, tasks: Iterable[ReplicationTask]) -> bool:
    """Return True if the flow needs its source watch, and the watch has not ended by itself."""
    return wants_watch(flow) and not any(map(has_ended, tasks))


def has_ended(task: ReplicationTask) -> bool:
    """Return True if the unit is a watch that has ended, because the reverse flow runs."""
    return any(
        (one.type, one.reason) == (ConditionType.SOURCE_STILL_WRITTEN, Reason.REVERSE_FLOW_RUNS)
        for one in task.status.conditions
    )


def desired_drivers(flow: ReplicationFlow, tasks: Iterable[ReplicationTask]) -> int:
    """Return the number of drivers that a flow on Kubernetes needs."""
    if flow.spec.state is not FlowState.STOPPED:
        return flow.spec.drivers.replicas
    return int(watches_source(flow, tasks))
