"""The facts about a MirrorTest, and the decision that follows from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.api import MirrorTest, MirrorTestStatus, Readiness, Reason, ReplicationFlow
from headrace.controller.mirror_tests.pods import TestPod
from headrace.controller.mirror_tests.status import with_conditions
from headrace.k8s import Object
from headrace.mirror_test import Stage


@dataclass(frozen=True)
class RunFacts:
    """All that a decision depends on."""

    test: MirrorTest
    now: datetime
    run: str = ""
    """Name of the run."""
    flow: ReplicationFlow | None = None
    """The one that the test names, when it is there."""
    jobs: Mapping[Stage, Object] | None = None
    """Those that are there."""
    pods: Sequence[TestPod] = ()
    """Of those Jobs, and the executors."""
    report: str | None = None
    """``report.json``, as the verifier left it."""
    breaks: bool = False
    """Whether the run has steps of chaos: those that it began with."""
    may_break: bool = False
    """Whether this operator has a role for the Job of ``spec.chaos``."""
    rehearses: bool = False
    """Whether the run has a rehearsal: the one that it began with."""
    may_rehearse: bool = False
    """Whether this operator has a role for the Job of ``spec.rehearsal``."""

    @property
    def started(self) -> datetime:
        """When the test began: now, if it has not."""
        return (self.test.status and self.test.status.start_time) or self.now

    def since_s(self, time: datetime) -> float:
        """Seconds since a time of the cluster's clock. If the operator's clock was ahead of it when
        the test began, the probe's Job seems to be older than the test, and the difference is
        subtracted; if that exceeds the time that passed, it was another operator's clock."""
        probe = (self.jobs or {}).get(Stage.PROBE)
        ahead_s = max(0.0, (self.started - created_at(probe)).total_seconds()) if probe else 0.0
        passed_s = (self.now - time).total_seconds()
        return passed_s - ahead_s if passed_s >= ahead_s else passed_s


@dataclass(frozen=True)
class StageDecision:
    """What to do about a test."""

    status: MirrorTestStatus
    start: Stage | None = None
    again_s: float | None = None
    """Seconds until the next reconcile without an event."""
    expired: bool = False
    """Whether its time after the end is over: delete it."""

    @property
    def is_last(self) -> bool:
        """Whether the test ends with it."""
        return self.status.verdict is not None


def created_at(job: Object) -> datetime:
    """When the API server created it."""
    return datetime.fromisoformat(job["metadata"]["creationTimestamp"])


def status_with(
    facts: RunFacts, ready: bool, stalled: bool, reason: Reason, message: str
) -> MirrorTestStatus:
    """The test's status with this readiness."""
    make = Readiness.stalled if stalled else Readiness.reconciling
    readiness = (Readiness.ready if ready else make)(reason, message)
    return with_conditions(facts.test, readiness, facts.now)
