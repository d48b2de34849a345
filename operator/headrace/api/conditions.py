"""Conditions of flows and tasks: their table, and functions that read and write them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Flag, auto

from headrace.api.flow_status import ReplicationFlowStatus
from headrace.api.meta import Condition, ConditionStatus, ConditionType, Reason
from headrace.api.mirror_test_status import MirrorTestStatus


class Reporter(Flag):
    """Reporters of a condition."""

    FLOW = auto()
    """Writer of a flow's status: the operator, or ``headrace run``."""
    CONNECTOR = auto()
    """A source connector. The flow's status repeats the connector's conditions."""
    TASK = auto()
    """A source task. The flow's status repeats the task's conditions."""
    WATCH = auto()
    """The watch of a stopped flow's source. The flow's status repeats the watch's condition."""


@dataclass(frozen=True)
class ConditionEntry:
    """A condition, and where it appears."""

    type: ConditionType
    reporters: Reporter
    is_alarm: bool = True
    """True if the live view shows it because a user should act."""
    alert: str | None = None
    """Name of the chart's alert that fires while the condition is True, or while Ready is False."""
    runbook: str = "conditions"
    """Anchor of the condition's section in docs/runbook.md."""


CONDITIONS: tuple[ConditionEntry, ...] = (
    ConditionEntry(
        ConditionType.READY, Reporter.FLOW, False, "HeadraceFlowNotReady", "headraceflownotready"
    ),
    ConditionEntry(ConditionType.RECONCILING, Reporter.FLOW, False),
    ConditionEntry(ConditionType.STALLED, Reporter.FLOW, False, runbook="reasons"),
    ConditionEntry(
        ConditionType.DATA_LOSS_DETECTED,
        Reporter.TASK | Reporter.CONNECTOR,
        alert="HeadraceDataLoss",
        runbook="headracedataloss",
    ),
    ConditionEntry(
        ConditionType.FOREIGN_WRITER,
        Reporter.TASK,
        alert="HeadraceForeignWriter",
        runbook="headraceforeignwriter",
    ),
    ConditionEntry(ConditionType.PARTITIONS_PAUSED, Reporter.TASK),
    ConditionEntry(ConditionType.RECORDS_LEFT_OUT, Reporter.TASK, runbook="refused-records"),
    ConditionEntry(
        ConditionType.PARTITION_CONTESTED,
        Reporter.TASK,
        alert="HeadracePartitionContested",
        runbook="headracepartitioncontested",
    ),
    ConditionEntry(
        ConditionType.TRANSACTION_HANGING, Reporter.TASK, runbook="hanging-transactions"
    ),
    ConditionEntry(
        ConditionType.TOMBSTONES_AT_RISK,
        Reporter.TASK,
        alert="HeadraceTombstonesAtRisk",
        runbook="headracetombstonesatrisk",
    ),
    ConditionEntry(ConditionType.RECORDS_MAY_REPEAT, Reporter.TASK),
    ConditionEntry(
        ConditionType.PROGRESS_NOT_STORED,
        Reporter.TASK,
        alert="HeadraceProgressNotStored",
        runbook="headraceprogressnotstored",
    ),
    ConditionEntry(
        ConditionType.VERIFICATION_FAILED,
        Reporter.TASK,
        alert="HeadraceVerificationFailed",
        runbook="headraceverificationfailed",
    ),
    ConditionEntry(ConditionType.BANDWIDTH_USED_UP, Reporter.TASK),
    ConditionEntry(ConditionType.REQUIREMENTS_MISSING, Reporter.CONNECTOR),
    ConditionEntry(ConditionType.TOPIC_DELETION, Reporter.CONNECTOR),
    ConditionEntry(ConditionType.TOPIC_CONFIGS_REFUSED, Reporter.CONNECTOR),
    ConditionEntry(
        ConditionType.SOURCE_STILL_WRITTEN,
        Reporter.WATCH,
        alert="HeadraceSourceStillWritten",
        runbook="headracesourcestillwritten",
    ),
    ConditionEntry(ConditionType.PARTITIONS_RESET, Reporter.FLOW, False),
    ConditionEntry(ConditionType.ASSIGNMENT_FAILED, Reporter.FLOW),
    ConditionEntry(ConditionType.DRIVERS_AVAILABLE, Reporter.FLOW, False),
    ConditionEntry(ConditionType.DRIVER_UNRESPONSIVE, Reporter.FLOW),
    ConditionEntry(ConditionType.ROLLOUT_STUCK, Reporter.FLOW),
    ConditionEntry(ConditionType.OBJECTS_CONTESTED, Reporter.FLOW),
    ConditionEntry(ConditionType.RECONCILIATION_PAUSED, Reporter.FLOW, False),
)
"""All conditions of a flow, in the order in which they are shown. Status, metrics, the live view,
the chart's alerts and the runbook follow this table."""

ALARMS = frozenset(one.type for one in CONDITIONS if one.is_alarm)
"""Conditions on which a user should act."""


def reported_by(reporter: Reporter) -> tuple[ConditionType, ...]:
    """Return the conditions that any of these reporters observes."""
    return tuple(one.type for one in CONDITIONS if one.reporters & reporter)


def find_condition(of: Iterable[Condition], type: ConditionType) -> Condition | None:
    """Return the condition of this type, or None."""
    return next((one for one in of if one.type is type), None)


def with_transition_times(
    conditions: Iterable[Condition],
    before: Iterable[Condition],
    now: datetime,
    generation: int | None,
) -> tuple[Condition, ...]:
    """Return the conditions with ``lastTransitionTime`` and the generation they describe.

    The time is kept from ``before`` if the status is unchanged; otherwise it is ``now``. The
    generation is added if it is known.
    """
    known = {one.type: one for one in before}
    made = []
    for new in conditions:
        old = known.get(new.type)
        kept = old is not None and old.status is new.status
        since = (old.last_transition_time if old is not None and kept else None) or now
        update: dict[str, object] = {"last_transition_time": since}
        if generation is not None:
            update["observed_generation"] = generation
        made.append(new.model_copy(update=update))
    return tuple(made)


@dataclass(frozen=True)
class Readiness:
    """Status of Ready and its reason. Use one of the three constructors."""

    status: ConditionStatus
    """Status of the condition Ready."""
    other: ConditionType | None
    """Condition that is true in addition: Reconciling or Stalled."""
    reason: Reason
    message: str

    @classmethod
    def ready(cls, reason: Reason, message: str) -> "Readiness":
        """Return a readiness that is true: the spec is fulfilled."""
        return cls(ConditionStatus.TRUE, None, reason, message)

    @classmethod
    def reconciling(cls, reason: Reason, message: str) -> "Readiness":
        """Return a readiness that is false while headrace works towards the spec."""
        return cls(ConditionStatus.FALSE, ConditionType.RECONCILING, reason, message)

    @classmethod
    def stalled(cls, reason: Reason, message: str) -> "Readiness":
        """Return a readiness that is false until a user changes something."""
        return cls(ConditionStatus.FALSE, ConditionType.STALLED, reason, message)


def conditions_of(
    readiness: Readiness,
    before: ReplicationFlowStatus | MirrorTestStatus | None,
    now: datetime,
    others: Iterable[Condition] = (),
    *,
    generation: int | None,
) -> tuple[Condition, ...]:
    """Return the conditions of a readiness, followed by ``others``.

    The conditions of a readiness are Ready and, if true, Reconciling or Stalled. All conditions
    describe ``generation`` of the object. ``before`` is the status so far: a condition whose status
    did not change keeps its lastTransitionTime, all others get ``now``.
    """
    wanted = [(ConditionType.READY, readiness.status)]
    if readiness.other is not None:
        wanted.append((readiness.other, ConditionStatus.TRUE))
    conditions = [
        Condition(type=type, status=status, reason=readiness.reason, message=readiness.message)
        for type, status in wanted
    ]
    known = before.conditions if before else ()
    return with_transition_times((*conditions, *others), known, now, generation)
