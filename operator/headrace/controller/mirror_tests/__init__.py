"""MirrorTests on Kubernetes: three Jobs one after the other, and the verdict that they leave.

``stages`` decides what comes next, ``schedule`` when a test with a schedule makes another one;
``jobs`` and ``access`` build what is applied: all of that is pure. ``reconcile`` does it.
"""

from headrace.controller.mirror_tests.jobs import Images, TestRun, build_run, report_name
from headrace.controller.mirror_tests.reconcile import MirrorTestReconciler, TestName
from headrace.controller.mirror_tests.schedule import Scheduled, next_scheduled
from headrace.controller.mirror_tests.stages import Facts, Step, next_step

__all__ = [
    "Facts",
    "Images",
    "MirrorTestReconciler",
    "Scheduled",
    "Step",
    "TestName",
    "TestRun",
    "build_run",
    "next_scheduled",
    "next_step",
    "report_name",
]
