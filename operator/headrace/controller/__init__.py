"""The operator: reconciles custom resources into Kubernetes objects.

Changes are queued, and one level-triggered reconciler for each kind acts.

``operator`` is the process. ``kopf_watch`` watches the children of flows and tests,
``cluster_cache`` keeps local copies, and ``queue`` holds the keys to reconcile.
``flow_reconciler`` reconciles a flow: ``flow_children`` builds what it owns by the pure
``resources``, ``drivers`` and ``assignment``; ``target_topics`` and ``loops`` find flows in
conflict. Only ``children`` and ``flow_writer`` write. ``mirror_tests`` contains all about
MirrorTests.
"""

from headrace.controller.flow_children import FlowSettings
from headrace.controller.mirror_tests import FixedRole, Images, SparkDefaults, TestSettings
from headrace.controller.operator import (
    OPERATOR_LEASE,
    OperatorOptions,
    check_operator,
    run_operator,
)
from headrace.controller.resources import DriverDefaults

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
