"""Load of a MirrorTest, faults injected during the load, and the audit that can replace it."""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headrace.api.model import (
    AtLeastOne,
    Count,
    LabelValue,
    Model,
    Name,
    NameOfEntry,
    Once,
    OnlyWith,
    RecordTime,
    Regex,
    Rule,
    RuleViolation,
    Text,
    Topic,
    Whole,
)
from headrace.api.schema_registry import AuditSchemas

TOPICS = 3
MESSAGES = 1_000_000
MIN_MESSAGE_BYTES = 64
"""Size of the prefix: an id of at most 26 bytes, 12 digits of the sequence, 13 of the time, and
three semicolons. All other bytes are payload."""


class MessageFormat(StrEnum):
    """Location of a message's identity. Both formats are kafka-mirror-tester's."""

    HEADERS = "Headers"
    BODY = "Body"


_NO_NAMES = "must be left out when names are given, and only then"
_NO_DURATION = "must be left out when durationSeconds is given, and only then"
_WINDOW_S = 600
_NO_WINDOWS = "needs durationSeconds: 0: another load has no windows"


class Load(Model):
    """Messages that are sent while the mirror runs."""

    names: Annotated[tuple[Topic, ...], Field(min_length=1, max_length=1000), Once()] | None = None
    """Source topics to write to, instead of a number of new topics."""
    topics: AtLeastOne | None = Field(
        default_factory=lambda given: None if given.get("names") else TOPICS,
        json_schema_extra={"default": TOPICS},
    )
    """Number of source topics, created as <test>-0, <test>-1 and so on. Not allowed with names."""
    partitions: Annotated[Whole, Field(ge=1, le=100_000)] = 8
    """Partitions of each topic that is created."""
    producers: Annotated[Whole, Field(ge=1, le=1000)] = 2
    """Number of producers. Each one sends its own messages to every topic."""
    duration_seconds: Count | None = None
    """Duration of the load in seconds, instead of a number of messages. With 0 the load has no end:
    it is divided into windows, and each has its own verdict."""
    window_seconds: Annotated[Whole, Field(ge=60)] = _WINDOW_S
    """Length of a window in seconds. Requires durationSeconds: 0."""
    messages: Annotated[Whole, Field(ge=1, le=1_000_000_000_000)] | None = Field(
        default_factory=lambda given: (
            None if given.get("duration_seconds") is not None else MESSAGES
        ),
        json_schema_extra={"default": MESSAGES},
    )
    """Number of messages in total, over all topics. Not allowed with durationSeconds."""
    messages_per_second: AtLeastOne | None = None
    """Maximum rate in messages per second and topic, for all producers together. A warning reports
    a lower rate. Default: unlimited."""
    message_size_bytes: Annotated[Whole, Field(ge=MIN_MESSAGE_BYTES)] = 1024
    """Size of a message's value in bytes, including its prefix id;seq;timestamp;."""
    message_format: MessageFormat = MessageFormat.HEADERS
    """Location of a message's identity: in headers, or in the prefix of its value (Body)."""

    rules = (
        Rule(
            "!has(self.topics) || !has(self.names)",
            _NO_NAMES,
            at="topics",
            reason="FieldValueForbidden",
        ),
        Rule(
            "!has(self.messages) || !has(self.durationSeconds)",
            _NO_DURATION,
            at="messages",
            reason="FieldValueForbidden",
        ),
        Rule(
            f"self.?windowSeconds.orValue({_WINDOW_S}) == {_WINDOW_S}"
            " || self.?durationSeconds.orValue(1) == 0",
            _NO_WINDOWS,
            at="windowSeconds",
        ),
    )

    @property
    def is_endless(self) -> bool:
        """True if the load is sent in windows, without end."""
        return self.duration_seconds == 0

    def _breaches(self) -> Iterator[RuleViolation]:
        if (self.topics is None) == (self.names is None):
            yield RuleViolation(("topics",), _NO_NAMES)
        if (self.messages is None) == (self.duration_seconds is None):
            yield RuleViolation(("messages",), _NO_DURATION)
        if self.window_seconds != _WINDOW_S and not self.is_endless:
            yield RuleViolation(("windowSeconds",), _NO_WINDOWS)


class ChaosAction(StrEnum):
    """Action of a chaos step.

    DeleteDriverPod, KillOperator, DeletePod, KillPod and ScaleDeployment are for Kubernetes only,
    actions on brokers for ``headrace verify`` on a sandbox, RunCommand for any ``headrace verify``.
    AddTopic, AddPartitions, DeletePod, KillPod and ScaleDeployment are for any mirror, all others
    for flows.
    """

    KILL_DRIVER = "KillDriver"
    """Kill the driver that owns most source tasks, as by kill -9."""
    DELETE_DRIVER_POD = "DeleteDriverPod"
    """Delete the pod of the driver that owns most source tasks. The driver hands over its units."""
    FREEZE_DRIVER = "FreezeDriver"
    """Freeze the driver that owns most source tasks for longer than its Lease, then resume it."""
    SCALE_DRIVERS = "ScaleDrivers"
    """Change the flow's spec.drivers.replicas. The change is not reverted."""
    KILL_OPERATOR = "KillOperator"
    """Kill the leading operator, as by kill -9."""
    ROLL_DRIVERS = "RollDrivers"
    """Replace all driver pods, as by kubectl rollout restart."""
    KILL_BROKER = "KillBroker"
    """Kill a broker of a sandbox, as by kill -9. It stays down."""
    STOP_BROKER = "StopBroker"
    """Stop a broker of a sandbox cleanly, so that its leaderships move first."""
    START_BROKER = "StartBroker"
    """Start a broker of a sandbox again. This step does not wait for the recovery from the previous
    one."""
    RUN_COMMAND = "RunCommand"
    """Run a program that injects or ends a fault. This step does not wait for the recovery from the
    previous one."""
    ADD_TOPIC = "AddTopic"
    """Create a topic on the source, and send the load to it as well."""
    ADD_PARTITIONS = "AddPartitions"
    """Add partitions to the topics of the load on the source. The load is spread over all of
    them."""
    PAUSE_FLOW = "PauseFlow"
    """Pause the flow for some time, then resume it."""
    DELETE_POD = "DeletePod"
    """Delete a pod with the given labels, as by kubectl delete pod."""
    KILL_POD = "KillPod"
    """Delete a pod with the given labels without a grace period, which kills its processes."""
    SCALE_DEPLOYMENT = "ScaleDeployment"
    """Change the replicas of a Deployment. The change is not reverted."""

    @property
    def is_of_broker(self) -> bool:
        """True if the action is about a broker of a sandbox."""
        return self in {self.KILL_BROKER, self.STOP_BROKER, self.START_BROKER}

    @property
    def is_of_machine(self) -> bool:
        """True if only ``headrace verify`` can do it, for every kind of mirror."""
        return self.is_of_broker or self is self.RUN_COMMAND

    @property
    def is_of_load(self) -> bool:
        """True if the action changes the topics of the load. Every kind of mirror supports it."""
        return self in {self.ADD_TOPIC, self.ADD_PARTITIONS}

    @property
    def is_of_others(self) -> bool:
        """True if the action is about pods of a mirror that is not a flow, in Kubernetes."""
        return self in {self.DELETE_POD, self.KILL_POD, self.SCALE_DEPLOYMENT}

    @property
    def needs_flow(self) -> bool:
        """True if the action is about a flow."""
        return not (self.is_of_machine or self.is_of_load or self.is_of_others)

    @property
    def is_of_pods(self) -> bool:
        """True if the mirror must run in pods."""
        return self in {self.DELETE_DRIVER_POD, self.KILL_OPERATOR} or self.is_of_others


class Side(StrEnum):
    """One of the clusters of a mirror."""

    SOURCE = "Source"
    TARGET = "Target"


_NO_PROGRAM = "must begin with the name of a program"
_ONE_MOMENT = "must have either atPercent or atSeconds"
_BROKERS = tuple(action for action in ChaosAction if action.is_of_broker)
_FIELDS = {
    "drivers": (ChaosAction.SCALE_DRIVERS,),
    "cluster": _BROKERS,
    "broker": _BROKERS,
    "command": (ChaosAction.RUN_COMMAND,),
    "partitions": (ChaosAction.ADD_PARTITIONS,),
    "seconds": (ChaosAction.PAUSE_FLOW,),
    "selector": (ChaosAction.DELETE_POD, ChaosAction.KILL_POD),
    "deployment": (ChaosAction.SCALE_DEPLOYMENT,),
    "replicas": (ChaosAction.SCALE_DEPLOYMENT,),
}
"""Actions that a field of a step belongs to."""
_OPTIONAL = {"broker"}


def _words(actions: tuple[ChaosAction, ...]) -> str:
    *others, last = actions
    return f"{', '.join(others)} and {last}" if others else str(last)


def _step_rules() -> Iterator[Rule]:
    """Yield rules that require or allow each field with its actions, and forbid it with others."""
    for field, actions in _FIELDS.items():
        listed = ", ".join(f"'{action}'" for action in actions)
        if field not in _OPTIONAL:
            yield Rule(
                f"!(self.action in [{listed}]) || has(self.{field})",
                f"is required with action: {_words(actions)}",
                at=field,
                reason="FieldValueRequired",
            )
        yield Rule(
            f"self.action in [{listed}] || !has(self.{field})",
            f"is for action: {_words(actions)} only",
            at=field,
            reason="FieldValueForbidden",
        )


class ChaosStep(Model):
    """One injected fault."""

    action: ChaosAction
    """The fault. DeleteDriverPod, KillOperator, DeletePod, KillPod and ScaleDeployment are for
    Kubernetes only; KillBroker, StopBroker and StartBroker for headrace verify, with clusters of
    headrace sandbox up. RunCommand is for headrace verify --run-commands. These four, AddTopic,
    AddPartitions, DeletePod, KillPod and ScaleDeployment need no flowName.
    """
    at_percent: Annotated[Whole, Field(ge=0, le=100)] | None = None
    """Start the step when this percentage of the load's messages is acknowledged."""
    at_seconds: Count | None = None
    """Start the step this number of seconds after the first message."""
    drivers: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    """ScaleDrivers: the new number of drivers."""
    cluster: Side | None = None
    """KillBroker, StopBroker, StartBroker: the cluster of the broker."""
    broker: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    """KillBroker, StopBroker, StartBroker: the number of the broker in the sandbox. Default: 1."""
    command: Annotated[tuple[Text, ...], Field(min_length=1, max_length=50)] | None = None
    """RunCommand: the program and its arguments, without a shell. It must end within 30 seconds
    with exit code 0."""

    partitions: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    """AddPartitions: the number of partitions to add to each topic of the load."""
    seconds: Annotated[Whole, Field(ge=1, le=86_400)] | None = None
    """PauseFlow: the duration of the pause in seconds. The recovery time starts when the flow is
    resumed."""
    selector: (
        Annotated[dict[NameOfEntry, LabelValue], Field(min_length=1, max_length=20)] | None
    ) = None
    """DeletePod, KillPod: the labels of the pod in the test's namespace. If several running pods
    match, the first by name is used."""
    deployment: Name | None = None
    """ScaleDeployment: the name of the Deployment in the test's namespace."""
    replicas: Annotated[Whole, Field(ge=0, le=1000)] | None = None
    """ScaleDeployment: the new number of replicas."""

    rules = (
        Rule("has(self.atPercent) != has(self.atSeconds)", _ONE_MOMENT),
        Rule("!has(self.command) || self.command[0] != ''", _NO_PROGRAM, at="command"),
        *_step_rules(),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if (self.at_percent is None) == (self.at_seconds is None):
            yield RuleViolation((), _ONE_MOMENT)
        if self.command and not self.command[0]:
            yield RuleViolation(("command",), _NO_PROGRAM)
        for field, actions in _FIELDS.items():
            is_given = getattr(self, field) is not None
            if self.action not in actions and is_given:
                yield RuleViolation((field,), f"is for action: {_words(actions)} only")
            elif self.action in actions and not is_given and field not in _OPTIONAL:
                yield RuleViolation((field,), f"is required with action: {_words(actions)}")


class AuditStartMode(StrEnum):
    """Choice of the first record of an audit."""

    EARLIEST = "Earliest"
    TIMESTAMP = "Timestamp"
    LAST_AUDIT = "LastAudit"


class AuditRecheck(StrEnum):
    """Ranges of earlier audits that are checked again."""

    SAMPLE = "Sample"
    FULL = "Full"


class AuditExamples(StrEnum):
    """Content of the report about a record that differs."""

    COORDINATES = "Coordinates"
    HASHES = "Hashes"
    RECORDS = "Records"

    @property
    def has_hashes(self) -> bool:
        """True if the report has hashes of the parts that differ."""
        return self is not AuditExamples.COORDINATES


_TIMESTAMP = OnlyWith("timestamp", "mode", AuditStartMode.TIMESTAMP)


class AuditStart(Model):
    """The first record that an audit compares in each partition."""

    mode: AuditStartMode = AuditStartMode.EARLIEST
    """Earliest: the first record that each side has. Timestamp: the first record that is not older
    than timestamp. LastAudit: the first record that the last audit with this mode that passed did
    not compare. With partitioning: Preserved only."""
    timestamp: RecordTime | None = None
    """First record that is not older than this time (RFC 3339). Requires mode: Timestamp."""

    rules = _TIMESTAMP.rules

    def _breaches(self) -> Iterator[RuleViolation]:
        yield from _TIMESTAMP.breaches(self.timestamp, self.mode)


_NEEDS_LAST = "Full goes with startFrom.mode: LastAudit only"
_STARTS_FROM_LAST = (
    "(has(self.startFrom) && has(self.startFrom.mode) && self.startFrom.mode == 'LastAudit')"
)


class Audit(Model):
    """Comparison of records that applications wrote, instead of a load."""

    topics: Annotated[tuple[Regex, ...], Field(min_length=1, max_length=1000)] | None = None
    """Regular expressions. A topic of the source is compared if one of them matches its whole name.
    With flowName the default is all topics that the flow copies. Internal topics and heartbeats are
    never compared."""
    exclude: Annotated[tuple[Regex, ...], Field(max_length=1000)] = ()
    """Regular expressions. A topic that one of them matches is not compared. Takes precedence over
    topics."""
    start_from: AuditStart = AuditStart()
    """First record to compare in each partition."""
    recheck: AuditRecheck = AuditRecheck.SAMPLE
    """Part of the records of earlier audits that is compared again to find later changes: a random
    hundredth (Sample) or all records (Full). Applies only to startFrom.mode: LastAudit."""
    examples: AuditExamples = AuditExamples.COORDINATES
    """Content of the report about records that differ: their offsets on both sides (Coordinates),
    also hashes of the differing parts (Hashes), or also the beginning of key and value
    (Records)."""
    schemas: AuditSchemas | None = None
    """Check that the target's schema registry knows the schema ids of the target's records. Only
    records in Confluent's wire format are checked. If absent, they are not checked."""

    rules = (
        Rule(
            f"!has(self.recheck) || self.recheck == 'Sample' || {_STARTS_FROM_LAST}",
            _NEEDS_LAST,
            at="recheck",
        ),
    )

    @property
    def is_incremental(self) -> bool:
        """True if the audit continues after the last one."""
        return self.start_from.mode is AuditStartMode.LAST_AUDIT

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.recheck is AuditRecheck.FULL and not self.is_incremental:
            yield RuleViolation(("recheck",), _NEEDS_LAST)


NOT_BESIDE_AUDIT = "must be left out beside audit"
ONLY_PRESERVED = "LastAudit goes with partitioning: Preserved only"
_LOAD_DEFAULTS = Load().model_dump(mode="json", by_alias=True)
_IS_CHOSEN = " || ".join(
    f"has(self.load.{field})"
    + ("" if default is None else f" && self.load.{field} != {json.dumps(default)}")
    for field, default in _LOAD_DEFAULTS.items()
)
_OF_A_LOAD = {
    "load": f"(has(self.load) && ({_IS_CHOSEN}))",
    "chaos": "(has(self.chaos) && size(self.chaos) > 0)",
    "rehearsal": "has(self.rehearsal)",
    **{
        f"budgets.{field}": f"(has(self.budgets) && has(self.budgets.{field}))"
        for field in ("replayed", "unequalOffsets", "latencyP99Ms", "recoverySeconds")
    },
}
"""CEL expressions that are true if a field about a load is set, by the field's path."""

BESIDE_AUDIT = (
    *(
        Rule(
            f"!has(self.audit) || !{given}",
            NOT_BESIDE_AUDIT,
            at=field,
            reason="FieldValueForbidden",
        )
        for field, given in _OF_A_LOAD.items()
    ),
    Rule(
        "!has(self.audit) || has(self.flowName) || has(self.audit.topics)",
        "is required where there is no flowName",
        at="audit.topics",
        reason="FieldValueRequired",
    ),
    Rule(
        "!has(self.audit) || !has(self.audit.startFrom) || !has(self.audit.startFrom.mode)"
        " || self.audit.startFrom.mode != 'LastAudit'"
        " || !has(self.partitioning) || self.partitioning == 'Preserved'",
        ONLY_PRESERVED,
        at="audit.startFrom.mode",
    ),
)
"""Rules of a MirrorTest's spec about its audit."""
