"""The operator: reconciles custom resources into Kubernetes objects.

What changed is queued; one level-triggered reconcile a kind acts.

``operator`` is the process; ``kopf_watch`` watches what flows and tests own, ``cluster_cache``
keeps copies of what decisions rest on (``flow_cache``, ``unit_cache`` and ``driver_cache`` are its
parts), ``access_check`` logs what cannot be watched, ``check`` asks from outside, ``queue`` holds
the keys to reconcile, ``flow`` is the reconcile of a flow, ``flow_children`` makes what it owns,
``rollouts`` says whose turn it is to replace drivers, ``metrics`` what Prometheus reads. Pure are
``resources`` (flow -> manifests), ``drivers`` and ``assignment`` (which driver owns which unit),
``targets``, ``blocked``. Only ``children`` and ``writes`` write. ``mirror_tests`` is all about
MirrorTests.
"""

from headrace.controller.check import check_operator
from headrace.controller.flow_children import Settings
from headrace.controller.mirror_tests import FixedRole, Images, SparkDefaults, TestSettings
from headrace.controller.operator import LEASE, OperatorOptions, run_operator
from headrace.controller.resources import DriverDefaults

__all__ = [
    "LEASE",
    "DriverDefaults",
    "FixedRole",
    "Images",
    "OperatorOptions",
    "Settings",
    "SparkDefaults",
    "TestSettings",
    "check_operator",
    "run_operator",
]
