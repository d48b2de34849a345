"""Stages of a mirror test and the order in which they start.

The caller that runs the stages (``headrace verify`` as processes, the operator as Jobs) observes
them as a ``RunState``. ``advance`` decides the next stage and when a run ends without a verdict.
Each caller has its own I/O and its own observations: the operator observes pods that do not start.
On one machine the caller enforces the time limit of the comparison, which a Job has as its
deadline. ``docs/mirror-tests-on-kubernetes.md`` has the states as a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from headrace.api import Load, MirrorTest, MirrorTestPhase


class Stage(StrEnum):
    """In the order in which they start."""

    PROBE = "probe"
    CHAOS = "chaos"
    """Only where ``spec.chaos`` is set. No Spark job: in a cluster a Job of its own, on one machine
    part of ``headrace verify``."""
    REHEARSAL = "rehearsal"
    """Only where ``spec.rehearsal`` is set, and as chaos."""
    PRODUCE = "produce"
    VERIFY = "verify"


_DEADLINE_S = 3_600
"""Beyond the times of the load and of the settling: a stage that takes an hour more is stuck. (What
a comparison takes is in docs/benchmarks.md.)"""

_AUDIT_DEADLINE_S = 86_400
"""Time limit of an audit beyond settleSeconds: one core reads a few TB a day."""

HEAP_MIB = {Stage.PROBE: 512, Stage.PRODUCE: 512, Stage.VERIFY: 1_536}
"""Memory of the JVM; Python's workers come on top."""

# A collector with threads of its own does not pay off in a process of a minute. Nor does the
# optimizing compiler where Python does the work: without it Spark's start costs 40 % less (10
# core-seconds). The verifier's work is the JVM's own: without it that takes three times as long.
# What Spark generates for a record is one method of 9 KB, and Java interprets all above 8 KB
# by default: that takes two and a half times as long.
_SERIAL = "-XX:+UseSerialGC"
JAVA_OPTIONS = {
    Stage.PROBE: f"{_SERIAL} -XX:TieredStopAtLevel=1",
    Stage.PRODUCE: f"{_SERIAL} -XX:TieredStopAtLevel=1",
    Stage.VERIFY: f"{_SERIAL} -XX:-DontCompileHugeMethods",
}


def local_slots(stage: Stage, producers: int) -> int:
    """Return the number of parallel tasks if all of them run in the Spark driver's process.

    Each producer, and each of as many consumers, needs one for the whole load.
    """
    return 2 if stage is Stage.VERIFY else producers


def assumed_per_second(load: Load) -> int:
    """Return the load's messages per second over all topics.

    Without a limit, assume 1,000 for each topic.
    """
    topics = len(load.names or ()) or load.topics or 1
    return topics * (load.messages_per_second or 1_000)


def deadline_s(test: MirrorTest, stage: Stage) -> int:
    """Return the time limit of a stage, in seconds from its start."""
    if test.spec.audit is not None:
        return _AUDIT_DEADLINE_S + test.spec.settle_seconds
    load, settle_s = test.spec.load, test.spec.settle_seconds
    if load.duration_seconds is not None:
        load_s = load.duration_seconds
    else:
        load_s = ceil((load.messages or 0) / assumed_per_second(load))
    return _DEADLINE_S + (settle_s if stage is Stage.VERIFY else load_s + settle_s)


ENDS_WITHIN_S = 60.0
"""Beyond settleSeconds: for the results of the probe's executors, and for the last recovery, whose
bound settleSeconds is. A fail-over is rehearsed after that at the latest."""
_REHEARSAL_END_S = 1_800.0
"""Beyond that: `headrace failover` waits 5 minutes until all is copied, and all groups read on."""


class Activity(StrEnum):
    """The states; each value is its message in the test's status."""

    STARTING_PROBE = "starting the probe"
    STARTING_CHAOS = "starting the Job of chaos"
    AWAITING_CHAOS = "waiting for the Job of chaos"
    AWAITING_PROBE = "waiting for the probe"
    STARTING_REHEARSAL = "starting the Job of the rehearsal"
    AWAITING_REHEARSAL = "waiting for the Job of the rehearsal"
    SENDING = "sending the load"
    AWAITING_ARRIVALS = "waiting for the last message on the target"
    AWAITING_RECOVERY = "waiting for the recovery from the last fault"
    REHEARSING = "failing over, reading on at the target, and undoing it"
    COMPARING = "comparing the clusters"
    REPORTED = "the verifier has reported"
    CHAOS_FAILED = "nothing was sent: the Job of chaos was not ready"
    REHEARSAL_FAILED = "nothing was sent: the Job of the rehearsal was not ready"
    LOAD_LOST = "the producer's Job is gone: nobody knows what was sent"
    UNREPORTED = "the verifier ended without a report"

    @property
    def phase(self) -> MirrorTestPhase:
        """Phase of the test."""
        return _PHASES.get(self, MirrorTestPhase.FINISHED)

    @property
    def is_end(self) -> bool:
        """Whether nothing comes after it."""
        return self.phase is MirrorTestPhase.FINISHED


_PHASES = {
    Activity.STARTING_PROBE: MirrorTestPhase.PENDING,
    Activity.STARTING_CHAOS: MirrorTestPhase.PENDING,
    Activity.AWAITING_CHAOS: MirrorTestPhase.PENDING,
    Activity.AWAITING_PROBE: MirrorTestPhase.PENDING,
    Activity.STARTING_REHEARSAL: MirrorTestPhase.PENDING,
    Activity.AWAITING_REHEARSAL: MirrorTestPhase.PENDING,
    Activity.SENDING: MirrorTestPhase.RUNNING,
    Activity.AWAITING_ARRIVALS: MirrorTestPhase.RUNNING,
    Activity.AWAITING_RECOVERY: MirrorTestPhase.RUNNING,
    Activity.REHEARSING: MirrorTestPhase.RUNNING,
    Activity.COMPARING: MirrorTestPhase.VERIFYING,
}


_BESIDE_THE_LOAD = {
    Stage.CHAOS: (Activity.STARTING_CHAOS, Activity.AWAITING_CHAOS, Activity.CHAOS_FAILED),
    Stage.REHEARSAL: (
        Activity.STARTING_REHEARSAL,
        Activity.AWAITING_REHEARSAL,
        Activity.REHEARSAL_FAILED,
    ),
}


@dataclass(frozen=True)
class StageState:
    """A stage that was started."""

    age_s: float = 0.0
    """Seconds since the start of the stage."""
    ready: bool = False
    """Whether the load may start, as far as this stage is concerned."""
    ended_s: float | None = None
    """Seconds since the stage ended with any exit code, or None while it runs."""

    @property
    def has_ended(self) -> bool:
        """Whether the stage has ended."""
        return self.ended_s is not None


@dataclass(frozen=True)
class RunState:
    """Input of ``advance``."""

    stages: Mapping[Stage, StageState]
    """Stages that were started."""
    settle_s: float
    """``settleSeconds`` of the test."""
    probe_start_s: float
    """How long the load waits for the probe: without it only latency is unknown."""
    chaos_start_s: float
    """How long the load waits for chaos, and for the rehearsal: without them it would prove
    nothing."""
    has_chaos: bool
    """Whether the run has steps of chaos."""
    has_load: bool = True
    """Whether the run sends a load; an audit only compares."""
    has_rehearsal: bool = False
    """Whether a stage of its own rehearses a fail-over."""
    has_manifest: bool = True
    """Whether the load, once it has ended, left a manifest: the probe ends by it."""
    load_sent: bool = False
    """Whether the load may have been sent, even if its stage does not exist."""
    reported: bool = False
    """Whether the verifier's report is there."""


@dataclass(frozen=True)
class Transition:
    """The state of the run, and the stage to start in order to enter it."""

    activity: Activity
    start: Stage | None = None


def advance(run: RunState) -> Transition:
    """One stage after the other; the load is sent once, whatever its exit code.

    A stage's exit code decides nothing: only the report has a verdict.
    """
    if run.reported:
        return Transition(Activity.REPORTED)
    if not run.has_load:
        return _comparison(run)
    load = run.stages.get(Stage.PRODUCE)
    return _before_the_load(run) if load is None else _since_the_load(run, load)


def _before_the_load(run: RunState) -> Transition:
    if run.load_sent:
        return Transition(Activity.LOAD_LOST)
    probe = run.stages.get(Stage.PROBE)
    if probe is None:
        return Transition(Activity.STARTING_PROBE, Stage.PROBE)
    if run.has_chaos and (awaited := _awaited(run, Stage.CHAOS)):
        return awaited
    if not (probe.ready or probe.has_ended or probe.age_s > run.probe_start_s):
        return Transition(Activity.AWAITING_PROBE)
    # Its consumers need the topics, which the probe makes.
    if run.has_rehearsal and (awaited := _awaited(run, Stage.REHEARSAL)):
        return awaited
    return Transition(Activity.SENDING, Stage.PRODUCE)


def _awaited(run: RunState, stage: Stage) -> Transition | None:
    """Return the transition while a stage that the load requires is not ready, or None."""
    starting, awaiting, failed = _BESIDE_THE_LOAD[stage]
    state = run.stages.get(stage)
    if state is None:
        return Transition(starting, stage)
    if state.ready:
        return None
    is_late = state.has_ended or state.age_s > run.chaos_start_s
    return Transition(failed if is_late else awaiting)


def _since_the_load(run: RunState, load: StageState) -> Transition:
    if load.ended_s is None:
        return Transition(Activity.SENDING)
    if Stage.VERIFY in run.stages:
        return _comparison(run)
    for stage, activity, end_s, applies in (
        (Stage.PROBE, Activity.AWAITING_ARRIVALS, ENDS_WITHIN_S, run.has_manifest),
        (Stage.CHAOS, Activity.AWAITING_RECOVERY, ENDS_WITHIN_S, True),
        (Stage.REHEARSAL, Activity.REHEARSING, ENDS_WITHIN_S + _REHEARSAL_END_S, True),
    ):
        other = run.stages.get(stage)
        runs = other is not None and not other.has_ended
        if applies and runs and load.ended_s < run.settle_s + end_s:
            return Transition(activity)
    return _comparison(run)


def _comparison(run: RunState) -> Transition:
    verify = run.stages.get(Stage.VERIFY)
    if verify is None:
        return Transition(Activity.COMPARING, Stage.VERIFY)
    return Transition(Activity.UNREPORTED if verify.has_ended else Activity.COMPARING)
