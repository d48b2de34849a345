"""The operator: reconciles custom resources into Kubernetes objects.

Changes put keys into a queue, and one level-triggered reconciler for each kind handles them.

``operator`` runs the process, with its ``options``. ``handlers`` receives the events of kopf, and
passes them to ``flow_controller`` and ``mirror_test_controller``, which have a queue each
(``queue``). ``cluster_cache`` and ``kopf_copy`` keep local copies of objects. ``access`` and
``check`` report missing permissions.

``flow_reconciler`` reconciles a flow. ``flow_children`` builds the flow's objects with the pure
modules ``resources``, ``drivers`` and ``assignment``. ``target_topics`` and ``loops`` find
conflicting flows. Only ``children`` and ``flow_writer`` write objects. ``mirror_tests`` reconciles
MirrorTests.
"""

from headrace.controller.check import check_operator
from headrace.controller.flow_children import FlowSettings
from headrace.controller.mirror_tests import Images, SparkDefaults, TestSettings
from headrace.controller.operator import run_operator
from headrace.controller.options import OPERATOR_LEASE, OperatorOptions
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
