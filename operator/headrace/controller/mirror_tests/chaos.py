"""The Job that carries out ``spec.chaos``."""

from headrace.api import ChaosAction
from headrace.controller.mirror_tests.beside_the_load import build_pod
from headrace.controller.mirror_tests.run import TestRun
from headrace.k8s import Object
from headrace.mirror_test import Stage

_MEMORY = "512Mi"
"""It reads all units of the flow, of which there may be 10,000."""


def build_chaos_pod(run: TestRun) -> Object:
    """What its pod is. It reads the load's progress in the journal, on the source; what arrives on
    the target only for steps whose recovery is seen there."""
    spec = run.test.spec
    on_target = any(
        step.action.is_of_load or step.action.is_of_others or step.action is ChaosAction.PAUSE_FLOW
        for step in run.steps
    )
    clusters = (spec.source, spec.target if on_target else None)
    return build_pod(run, Stage.CHAOS, clusters, _MEMORY)
