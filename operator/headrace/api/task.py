"""ReplicationTask: one unit of work of a flow; written by headrace, read by people."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from headrace.api.flow import FlowState, Lag, ReplicationFlow
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
        """Whether it polls the source and writes the tasks of its kind."""
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
    """State of a unit, on its owner."""

    CREATED = "Created"
    RESTORING = "Restoring"
    RUNNING = "Running"
    PAUSED = "Paused"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    CLOSED = "Closed"


_IDENTITY: Final = "is immutable: it says which unit this is"


class ReplicationTaskSpec(Model):
    """Work of the unit (written by its connector), and its owner (written by the operator)."""

    flow_name: Name
    """The flow it belongs to."""
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
    """The driver that is to run it; written by the operator only, as a scheduler writes
    nodeName."""
    standby_driver_names: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    """Drivers that keep it restored, ready to take over."""
    lost_incarnation: Text = ""
    """Incarnation of the last owner that the operator found lost; written with an
    assignment."""
    connector_epoch: Count = 0
    """Epoch of the connector that wrote the split; never falls."""

    @property
    def work(self) -> tuple[Work, ...]:
        """Work that its connector gave to it."""
        return self.groups if self.type is TaskType.CHECKPOINT_TASK else self.partitions

    @staticmethod
    def of_work(type: TaskType, work: Iterable[Work]) -> dict[str, tuple[Work, ...]]:
        """Return the field, in Python's spelling, with the work of a task of this type."""
        name = "groups" if type is TaskType.CHECKPOINT_TASK else "partitions"
        return {name: tuple(work)}

    rules = (
        Rule("self.flowName == oldSelf.flowName", _IDENTITY, at="flowName"),
        Rule("self.type == oldSelf.type", _IDENTITY, at="type"),
        Rule("self.?index.orValue(0) == oldSelf.?index.orValue(0)", _IDENTITY, at="index"),
        # A connector that was taken for dead writes too: of an old split nothing may stay.
        Rule(
            "self.?connectorEpoch.orValue(0) >= oldSelf.?connectorEpoch.orValue(0)",
            "must not fall or go: a connector with a higher epoch wrote this split",
            at="connectorEpoch",
        ),
    )


class TaskError(Model):
    """The last error of a unit."""

    reason: Text
    """One word for machines."""
    message: Annotated[str, Field(max_length=4096)]
    """A sentence for people: what was tried, on what, and what to do."""
    time: Timestamp
    """When it happened."""


_OfTopic = Annotated[str, Field(max_length=16640)]


class RackPartitions(Model):
    """Partitions that can be read in one rack."""

    rack: Annotated[Text, Field(min_length=1)]
    """Name of the rack (broker.rack), such as an availability zone."""
    # Text, as TopicPartitions have a rule in CEL, and 64 x 10,000 of them are beyond its budget.
    partitions: Annotated[tuple[_OfTopic, ...], Field(max_length=10000)] = ()
    """Partitions of the source with a broker there that serves them to consumers, like
    orders/0-3,7."""

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
    """Report of the owner; with an empty driverName the unit has no owner."""

    driver_name: Text = ""
    """The driver that owns the unit."""
    driver_incarnation: Text = ""
    """Incarnation of that driver: a restarted process is a new one."""
    epoch: Count = 0
    """Counts the claims; each is higher than any before."""
    phase: TaskPhase | None = None
    """State of the unit."""
    partitions: Annotated[tuple[TopicPartitions, ...], Field(max_length=10000)] = ()
    """Partitions that the task owns."""
    racks: Annotated[tuple[RackPartitions, ...], Field(max_length=64)] = ()
    """For a source connector: where the flow's partitions can be read without leaving a rack. Empty
    if its driver, or the brokers, have no racks.
    """
    lag: Lag | None = None
    """How far the target is behind. On Kubernetes this and the next field are written when they
    leave their power of two."""
    bytes_per_second: Count | None = None
    """Bytes copied a second, as they are sent: compressed."""
    skipped_records: Count | None = None
    """Records that the target refused and that were skipped, since the task exists."""
    dead_lettered_records: Count | None = None
    """Records that the target refused and that were written to the dead-letter topic, since the
    task exists."""
    restarts: Count = 0
    """Restarts after errors."""
    last_error: TaskError | None = None
    """Why it failed last."""
    observed_generation: Count | None = None
    """The metadata.generation that this status describes."""
    conditions: Conditions = ()
    """Observations about the unit."""
    losses: Annotated[tuple[LostOffsets, ...], Field(max_length=100)] = ()
    """Lost records of its partitions: those that stopped one, and others for a day."""
    source_writes: Annotated[tuple[SourceWrites, ...], Field(max_length=100)] = ()
    """For a source watch: writes to the source after the fail-over, the largest first."""


_EPOCH: Final = "self.?status.epoch.orValue(0)"
_OLD_EPOCH: Final = "oldSelf.?status.epoch.orValue(0)"


class ReplicationTask(Model):
    """A connector or a task of a flow: what it does, which driver runs it, how far behind it is."""

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
    """Return True if a driver must run the watch of the source, which has not ended by itself."""
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
