"""``kubectl scale`` and an HPA's requests to the scale subresource, with drivers that run."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer
from cluster.kubectl import KubectlError
from cluster.kubelet import Kubelet
from support.manifests import flow
from support.operators import Resources, give_rights, running_operator

Wait = Callable[..., Any]


class Scale:
    """The scale subresource of flow ``orders``, as an HPA sees it."""

    def __init__(self, api_server: ApiServer, resources: Resources, kubelet: Kubelet) -> None:
        self.resources = resources
        self._api_server, self._kubelet = api_server, kubelet
        group = f"/apis/headrace.dev/v1beta1/namespaces/{resources.namespace}"
        self.path = f"{group}/replicationflows/orders/scale"

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.resources.kubectl("get", "--raw", self.path))
        return found

    def write(self, replicas: int) -> bool:
        """Replace the object that was read with another number of replicas, as an HPA does.

        Returns False if the object was no longer the newest; the caller tries again.
        """
        scale = self.read()
        scale["spec"]["replicas"] = replicas
        try:
            self._api_server.kubectl("replace", "--raw", self.path, "-f", "-", input=scale)
        except KubectlError as error:
            if "the object has been modified" not in str(error):
                raise
            return False
        return True

    def pods(self) -> set[str]:
        """Return the pods that the selector selects."""
        selector = self.read()["status"]["selector"]
        return {
            pod["metadata"]["name"] for pod in self.resources.get("pods", "-l", selector)["items"]
        }

    def figures(self) -> dict[str, int | None]:
        """Return the numbers of requested and of running replicas."""
        scale, status = self.read(), self.resources.flow("orders")["status"]
        running = {pod.name for pod in self._kubelet.pods()}
        return {
            "asked": scale["spec"].get("replicas", 0),
            "deployment": self.resources.get("deployment", "orders-driver")["spec"]["replicas"],
            "counted": scale["status"]["replicas"],
            "alive": status.get("readyReplicas"),
            "selected": len(self.pods() & running),
        }


@pytest.fixture
def scale(
    *, api_server: ApiServer, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> Iterator[Scale]:
    """Yield drivers without any broker, which nevertheless run."""
    give_rights(api_server, namespace)
    resources = Resources(api_server, namespace)
    nowhere = {"alias": "east", "bootstrapServers": "127.0.0.1:1"}
    to = {"alias": "west", "bootstrapServers": "127.0.0.1:2"}
    with running_operator(api_server, namespace, tmp_path):
        resources.apply(
            flow("orders", source=nowhere, target=to),
            flow("other", source=nowhere, target=to, drivers={"replicas": 1}),
        )
        yield Scale(api_server, resources, kubelet)


def test_the_scale_of_a_flow_is_true_and_can_be_set(scale: Scale, wait_until: Wait) -> None:
    def there_are(count: int) -> None:
        names = ("asked", "deployment", "counted", "alive", "selected")
        wait_until(scale.figures, until=partial(eq, dict.fromkeys(names, count)))

    resources = scale.resources
    resources.kubectl("wait", "--for=jsonpath={.status.selector}", "rflow/orders", "--timeout=300s")
    there_are(2)
    resources.kubectl("scale", "rflow/orders", "--replicas=3")
    there_are(3)

    def not_selected() -> set[str]:
        every = {pod["metadata"]["name"] for pod in resources.get("pods")["items"]}
        return every - scale.pods()

    wait_until(not_selected, until=lambda of_the_other: len(of_the_other) == 1)
    wait_until(lambda: scale.write(1))
    there_are(1)
    with_others = resources.flow("orders")
    del with_others["spec"]["drivers"]
    resources.apply(flow("orders", source=with_others["spec"]["source"],
                         target=with_others["spec"]["target"]))  # fmt: skip
    there_are(1)  # a manifest that names no number takes none back
    resources.kubectl("scale", "rflow/orders", "--replicas=0")
    there_are(0)
    stalled = wait_until(
        lambda: resources.condition("orders", "Stalled"),
        until=lambda found: (found.get("reason"), found.get("status")) == ("NoDrivers", "True"),
    )
    assert "spec.drivers.replicas is 0" in stalled["message"]
    wait_until(lambda: scale.write(2))
    there_are(2)
