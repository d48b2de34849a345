"""Reconciles MirrorTests: starts Jobs in sequence, and reports the verdict.

``stages`` decides the next step from the facts, ``pods`` explains why pods do not start, and
``schedule`` decides when a test creates another one. ``jobs`` and ``fault_jobs`` build the Jobs of
a ``run``. ``run_reader`` reads and ``reconciler`` writes objects.
"""

from headrace.controller.mirror_tests.jobs import build_run
from headrace.controller.mirror_tests.reconciler import MirrorTestReconciler, TestName
from headrace.controller.mirror_tests.run import (
    Images,
    SparkDefaults,
    TestRun,
    TestSettings,
)
from headrace.controller.mirror_tests.schedule import next_scheduled
from headrace.controller.mirror_tests.stages import RunFacts, StageDecision, next_decision

__all__ = [
    "Images",
    "MirrorTestReconciler",
    "RunFacts",
    "SparkDefaults",
    "StageDecision",
    "TestName",
    "TestRun",
    "TestSettings",
    "build_run",
    "next_decision",
    "next_scheduled",
]
