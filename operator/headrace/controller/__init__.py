"""The operator: reconciles custom resources into Kubernetes objects.

``operator`` is the process, ``shell`` is kopf (which only watches), ``world`` what the operator
sees (``flows`` among it), ``sight`` says what it cannot see, ``queue`` what wants a look, ``flow``
the reconcile of a flow, ``metrics`` what Prometheus reads. Pure are ``resources`` (flow ->
manifests), ``drivers`` and ``assignment`` (who runs what), ``targets``, ``status``. Only
``children`` and ``writes`` write. ``mirror_tests`` is all about MirrorTests.
"""

from headrace.controller.flow import Settings
from headrace.controller.mirror_tests import ChaosRole, Images
from headrace.controller.operator import LEASE, OperatorOptions, run_operator

__all__ = ["LEASE", "ChaosRole", "Images", "OperatorOptions", "Settings", "run_operator"]
