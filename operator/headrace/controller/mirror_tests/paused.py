"""Resumes the flow that a Job of chaos has paused, when the Job ended before it could."""

from collections.abc import Mapping

from headrace.api import PAUSED_BY_ANNOTATION, ChaosAction, FlowState, MirrorTest
from headrace.controller.mirror_tests.ended import has_ended
from headrace.k8s import FLOW, Client, Object
from headrace.logs import get_logger
from headrace.mirror_test import Stage

log = get_logger(__name__)


async def resume(client: Client, test: MirrorTest, jobs: Mapping[Stage, Object]) -> None:
    """Nobody else does: that Job was killed, or is gone. While it runs, the pause is its own.

    A flow that somebody else has paused bears no annotation of this test.
    """
    flow, metadata = test.spec.flow_name, test.metadata
    if flow is None or all(step.action is not ChaosAction.PAUSE_FLOW for step in test.spec.chaos):
        return
    job = jobs.get(Stage.CHAOS)
    if job is not None and not has_ended(job):
        return
    found = await client.get(FLOW, metadata.namespace, flow)
    if found is None or _paused_by(found) != metadata.name:
        return
    patch: Object = {"metadata": {"annotations": {PAUSED_BY_ANNOTATION: None}}}
    if found["spec"].get("state") == FlowState.PAUSED:
        patch["spec"] = {"state": str(FlowState.RUNNING)}
        log.warning("resumed: the Job that paused it has ended", flow=flow, test=metadata.name)
    await client.patch(FLOW, metadata.namespace, flow, patch)


def _paused_by(flow: Object) -> str | None:
    name: str | None = (flow["metadata"].get("annotations") or {}).get(PAUSED_BY_ANNOTATION)
    return name
