"""Pods of a mirror that is not a flow, on a scripted API server."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.api import ChaosAction, ChaosStep
from headrace.chaos.pods import OtherPods
from headrace.errors import InvalidSpec

Json = dict[str, Any]


def pod(name: str, phase: str = "Running", **metadata: Any) -> Json:
    return {"metadata": {"name": name} | metadata, "status": {"phase": phase}}


class Api:
    """Pods of a mirror, and the requests for them."""

    who = "the chaos Job"

    def __init__(self) -> None:
        self.pods = [
            pod("mirror-0", "Pending"),
            pod("mirror-1", deletionTimestamp="2026-11-21T12:00:00Z"),
            pod("mirror-3"),
            pod("mirror-2"),
        ]
        self.asked: list[tuple[Any, ...]] = []

    async def list(self, kind: Any, namespace: str, *, labels: str) -> list[Json]:
        self.asked.append(("list", kind.name, namespace, labels))
        return self.pods

    async def delete(self, kind: Any, namespace: str, name: str, *, grace_s: int | None) -> bool:
        self.asked.append(("delete", kind.name, namespace, name, grace_s))
        return True

    async def patch(
        self, kind: Any, namespace: str, name: str, patch: Json, subresource: str
    ) -> Json:
        self.asked.append(("patch", kind.name, namespace, name, patch, subresource))
        return {}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def since() -> list[int]:
    """Return the list of the times since which messages must have arrived."""
    return []


@pytest.fixture
def others(api: Api, since: list[int]) -> Iterator[OtherPods]:
    def arrived(time_ms: int) -> Callable[[], bool]:
        since.append(time_ms)
        return lambda: True

    with asyncio.Runner() as runner:
        client: Any = api
        yield OtherPods(client, runner.run, "shop", arrived)


@pytest.mark.parametrize(
    ("action", "grace_s"), [(ChaosAction.DELETE_POD, None), (ChaosAction.KILL_POD, 0)]
)
def test_the_first_running_pod_with_the_labels_is_deleted(
    api: Api, others: OtherPods, since: list[int], action: ChaosAction, grace_s: int | None
) -> None:
    labels = {"tier": "mirror", "app": "mm2"}
    injection = others.inject(ChaosStep(action=action, at_percent=50, selector=labels))
    assert api.asked == [
        ("list", "Pod", "shop", "app=mm2,tier=mirror"),
        ("delete", "Pod", "shop", "mirror-2", grace_s),
    ]
    assert injection.driver == "pod mirror-2"
    assert since == [injection.at_ms]
    assert injection.recovered()


def test_no_pod_is_a_step_that_was_not_done(api: Api, others: OtherPods) -> None:
    api.pods = api.pods[:2]
    step = ChaosStep(action=ChaosAction.KILL_POD, at_percent=50, selector={"app": "mm2"})
    with pytest.raises(InvalidSpec, match="no pod with the labels app=mm2 runs in shop"):
        others.inject(step)


def test_a_deployment_is_scaled_by_its_subresource(api: Api, others: OtherPods) -> None:
    """A permission for the subresource does not allow a change of the pods."""
    action = ChaosAction.SCALE_DEPLOYMENT
    step = ChaosStep(action=action, at_percent=50, deployment="mirror", replicas=0)
    assert others.inject(step).driver == "Deployment mirror"
    scaled = {"spec": {"replicas": 0}}
    assert api.asked == [("patch", "Deployment", "shop", "mirror", scaled, "scale")]
