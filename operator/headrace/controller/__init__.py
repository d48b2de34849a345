"""The operator: reconciles custom resources into Kubernetes objects.

Changes put keys into a queue, and one level-triggered reconciler for each kind handles them.

``operator`` runs the process. ``kopf_watch`` watches the children of flows and tests,
``cluster_cache`` keeps local copies of objects, and ``queue`` holds the keys to reconcile.
``flow_reconciler`` reconciles a flow. ``flow_children`` builds the flow's objects with the pure
modules ``resources``, ``drivers`` and ``assignment``. ``target_topics`` and ``loops`` find
conflicting flows. Only ``children`` and ``flow_writer`` write objects. ``mirror_tests`` reconciles
MirrorTests.
"""

from headrace.controller.flow_children import FlowSettings
from headrace.controller.mirror_tests import Images, SparkDefaults, TestSettings
from headrace.controller.operator import (
    OPERATOR_LEASE,
    OperatorOptions,
    check_operator,
    run_operator,
)
from headrace.controller.resources import DriverDefaults, FixedRole

__all__ = [
    "OPERATOR_LEASE",
    "DriverDefaults",
    "FixedRole",
    "FlowSettings",
    "Images",
    "OperatorOptions",
    "SparkDefaults",
    "TestSettings",
    "check_operator",
    "run_operator",
]
