"""Changes of flows in a cluster whose objects are in memory."""

import asyncio
from copy import deepcopy
from typing import Any, cast

import pytest
from support.source_tasks import FLOW as MANIFEST

from headrace.api import LastValid, dump
from headrace.cli.flow.cluster_flows import ClusterFlows
from headrace.k8s import Client, Kind, Object

SPEC: Object = dump(MANIFEST.spec)


class Server:
    """Stores one flow, and merges patches into its spec."""

    def __init__(self, spec: Object, status: Object | None = None) -> None:
        metadata = {"name": "f", "namespace": "shop", "generation": 2, "resourceVersion": "2"}
        self.flow = {"metadata": metadata, "spec": spec, "status": status or {}}

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return deepcopy(self.flow)

    async def list(self, kind: Kind, namespace: str, *, labels: str = "") -> list[Object]:
        return []

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        self.flow["spec"] |= patch["spec"]
        return deepcopy(self.flow)


def flows(server: Server) -> ClusterFlows:
    return ClusterFlows(cast(Client, server), "shop", asyncio.run)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("set-state", {"state": "Paused"}),
        ("pause-partitions", {"partitions": "orders/1", "paused": True}),
        ("scale", {"drivers": 3}),
    ],
)
def test_answer_has_the_error_that_keeps_a_change_from_taking_effect(
    verb: str, arguments: dict[str, Any]
) -> None:
    last_valid = LastValid(generation=1, spec=SPEC).model_dump(mode="json", by_alias=True)
    wrong = Server({**SPEC, "tasks": {"max": -1}}, {"lastValid": last_valid})
    assert "spec.tasks.max" in flows(wrong).request("f", verb, **arguments)["notInForce"]
    assert not flows(Server(dict(SPEC))).request("f", verb, **arguments)["notInForce"]
