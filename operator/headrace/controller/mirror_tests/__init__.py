"""MirrorTests on Kubernetes: three Jobs one after the other, and the verdict that they leave.

``stages`` decides from the ``facts`` what comes next, ``pods`` what keeps it from that, ``outcome``
how it ends, ``schedule`` when a test with a schedule makes another one; ``jobs``, ``spark`` and
``access`` build what is applied: all of that is pure. ``reconcile`` does it, ``ended`` removes what
is left of a stage.
"""

from headrace.controller.mirror_tests.facts import Facts, Step
from headrace.controller.mirror_tests.jobs import Images, TestRun, build_run, report_name
from headrace.controller.mirror_tests.reconcile import MirrorTestReconciler, TestName
from headrace.controller.mirror_tests.schedule import Scheduled, next_scheduled
from headrace.controller.mirror_tests.stages import next_step

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
