"""MirrorTests on Kubernetes: Jobs one after the other, and the verdict that they leave.

``stages`` decides from the ``facts`` what comes next, ``pods`` what keeps it from that, ``outcome``
how it ends, ``schedule`` and ``windows`` when a test makes another one; ``jobs``, ``spark``,
``chaos`` and ``rehearsal`` (with ``beside_the_load``) and ``access`` build what is applied,
``defaults`` is what all tests have, ``run`` is what all of it has in common: all of that is pure.
``reconcile`` does it, ``ended`` removes what is left of a stage, ``killed`` is how a test kills its
operator.
"""

from headrace.controller.mirror_tests.defaults import SparkDefaults
from headrace.controller.mirror_tests.facts import RunFacts, StageDecision
from headrace.controller.mirror_tests.jobs import build_run
from headrace.controller.mirror_tests.reconcile import MirrorTestReconciler, TestName
from headrace.controller.mirror_tests.run import (
    FixedRole,
    Images,
    TestRun,
    TestSettings,
    report_name,
)
from headrace.controller.mirror_tests.schedule import Scheduled, next_scheduled
from headrace.controller.mirror_tests.stages import next_decision

__all__ = [
    "FixedRole",
    "Images",
    "MirrorTestReconciler",
    "RunFacts",
    "Scheduled",
    "SparkDefaults",
    "StageDecision",
    "TestName",
    "TestRun",
    "TestSettings",
    "build_run",
    "next_decision",
    "next_scheduled",
    "report_name",
]
