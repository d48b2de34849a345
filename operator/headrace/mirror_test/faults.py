"""Faults and rehearsed fail-overs of a mirror test.

Plan and outcome have the same format. Each step of a plan contains an error, which remains the
outcome if nothing reports the step.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.api import ChaosStep, Model, Rehearsal, TopicPartition
from headrace.mirror_test import documents


class Fault(Model):
    """Step of ``spec.chaos`` and its outcome."""

    step: ChaosStep
    """Requested step."""
    at_ms: int | None = None
    """Time of the fault in ms since 1970. Absent if it was not injected."""
    acknowledged: int | None = None
    """Number of messages of the load that were acknowledged at the time of the fault."""
    percent: float | None = None
    """Percentage of the load that was acknowledged at the time of the fault."""
    driver: str | None = None
    """Name of the affected driver or broker."""
    units: tuple[str, ...] = ()
    """Connectors and tasks of the affected driver."""
    recovery_seconds: float | None = None
    """Time until all ``units`` ran again. Absent if no recovery was observed."""
    error: str | None = None
    """Reason why the fault was not injected or its recovery was not observed."""
    watched: bool = True
    """True if the recovery was watched up to its time limit."""

    @property
    def outcome_if_unreported(self) -> "Fault":
        """Outcome if no further report follows.

        It is the fault itself or, while its recovery is timed, the fault with an error.
        """
        if self.at_ms is None or self.recovery_seconds is not None or self.error:
            return self
        ended = "the Job that watched it ended before it did"
        return self.model_copy(update={"error": ended, "watched": False})


class Faults(Model):
    """Steps of ``spec.chaos``, in order."""

    faults: tuple[Fault, ...] = ()

    @property
    def steps(self) -> tuple[ChaosStep, ...]:
        """Requested steps."""
        return tuple(fault.step for fault in self.faults)

    def updated(self, outcomes: Iterable[Fault]) -> "Faults":
        """Return this plan with the outcomes of its first steps."""
        known = tuple(fault.outcome_if_unreported for fault in outcomes)
        return Faults(faults=(*known, *self.faults[len(known) :]))


def build_plan(steps: Iterable[ChaosStep], unreported: str) -> str:
    """Return the plan as JSON. ``unreported`` is the error of a step that nothing reports."""
    plan = Faults(faults=tuple(Fault(step=step, error=unreported) for step in steps))
    return plan.model_dump_json(by_alias=True, exclude_defaults=True, indent=1)


def read_plan(text: str, name: str) -> Faults:
    """Parse a plan. Raise ``InvalidSpec``, with ``name``, if it is invalid."""
    return documents.read_plan(text, name, Faults)


# Outcome of a rehearsed fail-over: the number of records that each consumer group read on both
# clusters. In a cluster ``rehearsal.json`` is also the plan. It contains the groups, and the error
# that remains the outcome if nothing reports the rehearsal.

RecordId = tuple[str, int]
"""Identity of a record on both clusters: its source topic and a hash of its unique value."""
Log = Mapping[RecordId, tuple[TopicPartition, int]]
"""Partition and offset of each record on the source."""


class RehearsedGroup(Model):
    """Consumer group of a rehearsal, with the records that it reread and skipped."""

    group: str
    committed: int
    """Number of the load's records that the group had committed on the source."""
    reread: int
    """Number of records that the group received again on the target.

    These are records that it had committed, and repeated deliveries.
    """
    skipped: int
    """Number of target records that the group had not committed and did not receive."""


class Rehearsed(Model):
    """Outcome of a rehearsal for all consumer groups of the run."""

    groups: tuple[RehearsedGroup, ...] = ()
    seconds: float | None = None
    """Duration of the fail-over, from the command to its end."""
    error: str | None = None
    """Error of the rehearsal. Absent if the fail-over succeeded and all groups resumed."""
    not_undone: str | None = None
    """Reason why the flow is still failed over. Absent if it is not."""


def group_names(run: str, asked: Rehearsal) -> list[str]:
    """Return the names of a run's consumer groups."""
    return [f"headrace-rehearsal-{run}-{number}" for number in range(asked.groups)]


def build_rehearsal(run: str, asked: Rehearsal, unreported: str) -> str:
    """Return the plan as JSON. ``unreported`` is the error if nothing reports the rehearsal."""
    groups = tuple(
        RehearsedGroup(group=name, committed=0, reread=0, skipped=0)
        for name in group_names(run, asked)
    )
    return Rehearsed(groups=groups, error=unreported).model_dump_json(by_alias=True, indent=1)


def read_rehearsal(text: str, name: str) -> Rehearsed:
    """Parse a rehearsal's plan. Raise ``InvalidSpec``, with ``name``, if it is invalid."""
    return documents.read_plan(text, name, Rehearsed)


def count_group(
    group: str,
    source: Log,
    target: Iterable[RecordId],
    committed: Mapping[TopicPartition, int],
    delivered: Iterable[RecordId],
) -> RehearsedGroup:
    """Count the records that a group reread or skipped, without records of other writers.

    Args:
        group: Name of the group.
        source: Records of the source.
        target: Records that exist on the target.
        committed: Committed offset of the group in each partition of the source.
        delivered: Records that the group received on the target.
    """
    before = {
        record for record, (at, offset) in source.items() if offset < committed.get(at, offset)
    }
    due = (set(target) & source.keys()) - before
    times = Counter(record for record in delivered if record in source)
    return RehearsedGroup(
        group=group,
        committed=len(before),
        reread=sum(times.values()) - len(due & times.keys()),
        skipped=len(due - times.keys()),
    )
