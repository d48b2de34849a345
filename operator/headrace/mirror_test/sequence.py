"""Stages of a mirror test, and the order in which they start.

A caller runs the stages and observes them as a ``RunState``: ``headrace verify`` runs processes,
and the operator runs Jobs. ``advance`` decides which stage starts next, and when a run ends without
a verdict. ``headrace verify`` enforces the time limit of the comparison itself, and a Job has a
deadline. ``docs/mirror-tests-on-kubernetes.md`` lists the states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from headrace.api import Load, MirrorTest, MirrorTestPhase


class Stage(StrEnum):
    """Stages in the order in which they start."""

    PROBE = "probe"
    CHAOS = "chaos"
    """Injects the faults of ``spec.chaos``, if there are any.

    It is no Spark job. It is a Job in a cluster, and part of ``headrace verify`` on one machine.
    """
    REHEARSAL = "rehearsal"
    """Rehearses a fail-over if ``spec.rehearsal`` is set.

    It is no Spark job. It is a Job in a cluster, and part of ``headrace verify`` on one machine.
    """
    PRODUCE = "produce"
    VERIFY = "verify"


_DEADLINE_S = 3_600
"""Time limit of a stage in addition to the times of the load and of settling.

A stage that needs an hour more than these times is stuck. docs/benchmarks.md has the duration of
comparisons.
"""

_AUDIT_DEADLINE_S = 86_400
"""Time limit of an audit in seconds, in addition to ``settleSeconds``.

One core reads a few TB a day.
"""

HEAP_MIB = {Stage.PROBE: 512, Stage.PRODUCE: 512, Stage.VERIFY: 1_536}
"""JVM heap of each Spark stage in MiB. Python's workers need memory in addition."""

# In a process that runs for a minute, a garbage collector with its own threads costs more than it
# saves. So does the optimizing compiler if Python does the work: without it Spark's start costs 40
# % less CPU (10 core-seconds). The verifier's work is done in the JVM: without the compiler, many
# records take three times as long. Spark generates one method of 9 KB for each record. By default
# Java interprets methods above 8 KB, which takes two and a half times as long.
_SERIAL = "-XX:+UseSerialGC"
_QUICK = "-XX:TieredStopAtLevel=1"
JAVA_OPTIONS = {
    Stage.PROBE: f"{_SERIAL} {_QUICK}",
    Stage.PRODUCE: f"{_SERIAL} {_QUICK}",
    Stage.VERIFY: f"{_SERIAL} -XX:-DontCompileHugeMethods",
}

_FEW_RECORDS = 100_000
"""Records of a cluster up to which a comparison runs without the optimizing compiler.

Without it, comparisons of 2,000 to 100,000 records of 1 KiB take 30 to 40 % less CPU. CPU and
duration are equal at 400,000 to 1,000,000 records.
"""


def compiler_options(records: int | None) -> str:
    """Return the options of the verifier's JVM about its compilers, in addition to its others.

    Args:
        records: Records of each cluster to compare, or None if their number is unknown.
    """
    return _QUICK if records is not None and records <= _FEW_RECORDS else ""


def java_options(test: MirrorTest, stage: Stage) -> str:
    """Return the options of the JVM of a stage's Job in a cluster.

    This JVM starts before the verifier can read the load's manifest or the offsets of an audit.
    """
    if stage is not Stage.VERIFY:
        return JAVA_OPTIONS[stage]
    return f"{JAVA_OPTIONS[stage]} {compiler_options(planned_messages(test))}".rstrip()


def planned_messages(test: MirrorTest) -> int | None:
    """Return the planned number of messages of the load, or None if it is unknown.

    Messages to topics that chaos adds are not included. Nor are records that applications write to
    the topics of the load.
    """
    load = test.spec.load
    if test.spec.audit is not None:
        return None
    if load.messages is None and (load.is_endless or load.messages_per_second is None):
        return None
    return assumed_messages(load)


def local_slots(stage: Stage, producers: int) -> int:
    """Return the number of tasks that a stage runs in parallel if its Spark driver runs all tasks.

    Each producer requires a slot for the whole load. The probe has as many consumers as there are
    producers, and each requires a slot as well.
    """
    return 2 if stage is Stage.VERIFY else producers


def assumed_messages(load: Load) -> int:
    """Return the number of messages. If the load has none, estimate it from its duration."""
    if load.messages is not None:
        return load.messages
    return (load.duration_seconds or 0) * assumed_per_second(load)


def assumed_per_second(load: Load) -> int:
    """Return the load's messages per second over all topics.

    If the rate is unlimited, 1,000 messages per second are assumed for each topic.
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


ENDS_TIMEOUT_S = 60.0
"""Time limit of probe and chaos after the load in seconds, in addition to ``settleSeconds``.

In this time the probe's executors return their results, and the last recovery is observed. A
rehearsed fail-over begins at the latest after this time.
"""
_REHEARSAL_END_S = 1_800.0
"""Time limit of a rehearsal, in addition to ``ENDS_TIMEOUT_S``.

``headrace failover`` waits up to 5 minutes until everything is copied. Then all groups continue to
read.
"""


class Activity(StrEnum):
    """States of a run. Each value is the message in the test's status."""

    STARTING_PROBE = "starting the probe"
    STARTING_CHAOS = "starting the Job of chaos"
    AWAITING_CHAOS = "waiting for the Job of chaos"
    AWAITING_PROBE = "waiting for the probe"
    STARTING_REHEARSAL = "starting the Job of the rehearsal"
    AWAITING_REHEARSAL = "waiting for the Job of the rehearsal"
    SENDING = "sending the load"
    AWAITING_ARRIVALS = "waiting for the last message on the target"
    AWAITING_RECOVERY = "waiting for the recovery from the last fault"
    REHEARSING = "failing over, resuming on the target, and undoing it"
    COMPARING = "comparing the clusters"
    REPORTED = "the verifier has reported"
    CHAOS_FAILED = "nothing was sent: the Job of chaos was not ready"
    REHEARSAL_FAILED = "nothing was sent: the Job of the rehearsal was not ready"
    LOAD_LOST = "the producer's Job was deleted: it is unknown what was sent"
    UNREPORTED = "the verifier ended without a report"

    @property
    def phase(self) -> MirrorTestPhase:
        return _PHASES.get(self, MirrorTestPhase.FINISHED)

    @property
    def is_end(self) -> bool:
        """True if no other state follows."""
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
    """State of a stage that was started."""

    age_s: float = 0.0
    """Seconds since the start of the stage."""
    ready: bool = False
    """True if the stage allows the load to start."""
    ended_s: float | None = None
    """Seconds since the stage ended with any exit code, or None while it runs."""

    @property
    def has_ended(self) -> bool:
        return self.ended_s is not None


@dataclass(frozen=True)
class RunState:
    """Input of ``advance``."""

    stages: Mapping[Stage, StageState]
    """States of the stages that were started."""
    settle_s: float
    """``settleSeconds`` of the test."""
    probe_start_s: float
    """Maximum time in s that the load waits for the probe.

    Without the probe, only the latency is unknown.
    """
    chaos_start_s: float
    """Maximum time in s that the load waits for chaos and for the rehearsal.

    Without them the run would not test what it is meant to test.
    """
    has_chaos: bool
    """True if the run has chaos steps."""
    has_load: bool = True
    """True if the run sends a load. An audit only compares."""
    has_rehearsal: bool = False
    """True if a separate stage rehearses a fail-over."""
    has_manifest: bool = True
    """True if an ended load has left a manifest, which also ends the probe."""
    load_sent: bool = False
    """True if the load may have been sent even though its stage does not exist."""
    reported: bool = False
    """True if the verifier's report exists."""


@dataclass(frozen=True)
class Transition:
    """New state of a run, and the stage to start, if any."""

    activity: Activity
    start: Stage | None = None


def advance(run: RunState) -> Transition:
    """Return the next state of a run.

    The load is sent only once, even if it fails. Exit codes of stages have no influence, because
    only the report contains the verdict.
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
    # The rehearsal's consumers need the topics, which the probe creates.
    if run.has_rehearsal and (awaited := _awaited(run, Stage.REHEARSAL)):
        return awaited
    return Transition(Activity.SENDING, Stage.PRODUCE)


def _awaited(run: RunState, stage: Stage) -> Transition | None:
    """Return the transition while a stage that must precede the load is not ready, or None."""
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
        (Stage.PROBE, Activity.AWAITING_ARRIVALS, ENDS_TIMEOUT_S, run.has_manifest),
        (Stage.CHAOS, Activity.AWAITING_RECOVERY, ENDS_TIMEOUT_S, True),
        (Stage.REHEARSAL, Activity.REHEARSING, ENDS_TIMEOUT_S + _REHEARSAL_END_S, True),
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
