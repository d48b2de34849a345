"""Conditions: find one, and write those that every object of ours has (kstatus)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from headrace.api.flow import ReplicationFlowStatus
from headrace.api.meta import Condition, ConditionStatus, ConditionType, Reason
from headrace.api.mirror_test import MirrorTestStatus


def condition(of: Iterable[Condition], type: ConditionType) -> Condition | None:
    """Return the condition of this type, if there is one."""
    return next((condition for condition in of if condition.type is type), None)


def dated(
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
    """Whether an object is ready, and why. Made by one of the three constructors."""

    status: ConditionStatus
    """Status of the condition Ready."""
    other: ConditionType | None
    """The condition that is true beside it: Reconciling or Stalled."""
    reason: Reason
    message: str

    @classmethod
    def ready(cls, reason: Reason, message: str) -> "Readiness":
        """All that the spec asks for is done."""
        return cls(ConditionStatus.TRUE, None, reason, message)

    @classmethod
    def reconciling(cls, reason: Reason, message: str) -> "Readiness":
        """Not ready; work towards the spec is under way."""
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
    """Return Ready, Reconciling or Stalled if true, and ``others``.

    All of them describe ``generation`` of the object. ``before`` is the status so far: a condition
    whose status did not change keeps its lastTransitionTime, all others get ``now``.
    """
    wanted = [(ConditionType.READY, readiness.status)]
    if readiness.other is not None:
        wanted.append((readiness.other, ConditionStatus.TRUE))
    conditions = [
        Condition(type=type, status=status, reason=readiness.reason, message=readiness.message)
        for type, status in wanted
    ]
    known = before.conditions if before else ()
    return dated((*conditions, *others), known, now, generation)
