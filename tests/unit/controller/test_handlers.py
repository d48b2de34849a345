"""Handlers of kopf, with an API server whose watches a test controls."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sized
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path

import pytest
from aiohttp import web
from cluster.kubectl import write_kubeconfig
from structlog.testing import capture_logs
from support.fake_api_server import serving
from support.manifests import flow

from headrace.controller.children import CHILDREN
from headrace.controller.events import EventRecorder
from headrace.controller.flow_children import FlowSettings
from headrace.controller.flow_controller import FlowController
from headrace.controller.handlers import EndlessBackoffs, run_handlers
from headrace.controller.mirror_tests import Images, TestSettings
from headrace.controller.operator import run_operator
from headrace.controller.options import OperatorOptions
from headrace.k8s import (
    CONFIG_MAP,
    DEPLOYMENT,
    FLOW,
    JOB,
    LEASE,
    MIRROR_TEST,
    POD,
    TASK,
    Kind,
    Object,
    connect,
)
from headrace.k8s.kinds import CUSTOM_RESOURCE_DEFINITION, NAMESPACE

NO_LEADER = {"kind": "Status", "status": "Failure", "code": 500, "message": "no leader of etcd"}
GONE = {"kind": "Status", "status": "Failure", "code": 410, "message": "too old resource version"}
NOT_SERVED = {"kind": "Status", "status": "Failure", "code": 404, "message": "404 page not found"}
NOT_FOUND = NOT_SERVED | {"message": "not found"}
OPTIONS = OperatorOptions(
    identity="operator-1",
    namespaces=(),
    selector="",
    lease_namespace="default",
    lease="operator",
    ip="127.0.0.1",
    port=0,
    flows=FlowSettings("headrace:1"),
    max_concurrent_rollouts=0,
    tests=None,
    retry_s=0.05,
)
NEVER_S = 1e6


def test_kopf_never_runs_out_of_backoffs_whichever_request_it_is() -> None:
    backoffs = EndlessBackoffs()
    assert not isinstance(backoffs, Sized)
    for _ in range(2):
        waits = list(islice(backoffs, 1000))
        assert len(waits) == 1000
        assert (waits[0], max(waits)) == (1, 8)


class Server:
    """API server that stores flows only. It sends the events that a test puts into its watches."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = [FLOW, TASK, *CHILDREN, POD, LEASE, *kinds]
        """Kinds that it serves."""
        self.flows: dict[str, Object] = {}
        self.events: dict[Kind, asyncio.Queue[tuple[str, Object]]] = {}
        """Events to send in the last watch of each kind."""
        self.lists: list[Kind] = []
        self.watches: list[Kind] = []
        """Kinds of the lists and watches that were requested, in order."""
        self._version = 1

    def put(self, flow: Object) -> Object:
        """Store a flow, and return it as the API server does."""
        self._version += 1
        version = str(self._version)
        metadata = {"namespace": "shop", "uid": version, "resourceVersion": version}
        stored = flow | {"metadata": flow["metadata"] | metadata}
        self.flows[flow["metadata"]["name"]] = stored
        return stored

    def delete(self, name: str) -> None:
        self._version += 1
        del self.flows[name]

    def send(self, kind: Kind, type: str, object: Object) -> None:
        """Send an event in the last watch of a kind. The watch ends after an error."""
        self.events[kind].put_nowait((type, object))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            return await self._write(request)
        if (found := discovery(self.kinds).get(request.path)) is not None:
            return web.json_response(found)
        kind = next((one for one in self.kinds if one.path(None) == request.path), None)
        if kind is None:
            is_object = "/namespaces/" in request.path
            return web.json_response(NOT_FOUND if is_object else NOT_SERVED, status=404)
        if request.query.get("watch") == "true":
            return await self._watch(request, kind)
        self.lists.append(kind)
        items = list(self.flows.values()) if kind is FLOW else []
        metadata = {"resourceVersion": str(self._version)}
        return web.json_response({"kind": "List", "items": items, "metadata": metadata})

    async def _write(self, request: web.Request) -> web.Response:
        self._version += 1
        sent = await request.json()
        written = self.flows.get(sent["metadata"].get("name"), {}) | sent
        written["metadata"] |= {"resourceVersion": str(self._version)}
        return web.json_response(written)

    async def _watch(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.watches.append(kind)
        events = self.events[kind] = asyncio.Queue()
        type = ""
        while type != "ERROR":
            type, object = await events.get()
            await response.write(json.dumps({"type": type, "object": object}).encode() + b"\n")
        return response


def discovery(kinds: Iterable[Kind]) -> dict[str, object]:
    """Return the answers to the first requests of kopf to an API server."""
    needed = (NAMESPACE, CUSTOM_RESOURCE_DEFINITION)
    kinds = sorted((*kinds, *needed), key=lambda kind: kind.api_version)
    served = {version: list(group) for version, group in groupby(kinds, lambda k: k.api_version)}
    versions = {
        name: {"groupVersion": name, "version": name.partition("/")[2]}
        for name in served
        if "/" in name
    }
    return {
        "/api": {"versions": ["v1"]},
        "/apis": {
            "groups": [
                {"name": name.partition("/")[0], "versions": [one], "preferredVersion": one}
                for name, one in versions.items()
            ]
        },
    } | {
        f"/{'apis' if '/' in version else 'api'}/{version}": {
            "resources": [
                {
                    "name": kind.plural,
                    "singularName": kind.name.lower(),
                    "namespaced": kind.namespaced,
                    "kind": kind.name,
                    "verbs": ["list", "watch"],
                }
                for kind in group
            ]
        }
        for version, group in served.items()
    }


@asynccontextmanager
async def handling(
    server: Server, kubeconfig: Path, *, list_every_s: float
) -> AsyncIterator[FlowController]:
    """Run the handlers until the block ends, and yield their flows."""
    async with serving(server.answer) as url:
        write_kubeconfig(kubeconfig, url, None, {"token": "any"})
        client = await connect("the operator")
        events = EventRecorder(client, OPTIONS.identity)
        flows = FlowController(client, events, OPTIONS, list_every_s=list_every_s)
        running = asyncio.create_task(run_handlers(flows, None, OPTIONS, flows.run()))
        try:
            yield flows
        finally:
            running.cancel()
            await asyncio.wait([running])
            await client.close()


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file from which the operator and kopf read the API server's address."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return tmp_path / "config"


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def names(flows: FlowController) -> list[str]:
    return [one["metadata"]["name"] for one in flows.objects()]


def test_deletion_that_a_closed_watch_hid_is_noticed(kubeconfig: Path) -> None:
    """After 410 Gone, kopf lists again and does not report that a flow is absent."""

    async def test() -> None:
        server = Server()
        server.put(flow("orders"))
        async with handling(server, kubeconfig, list_every_s=0.2) as flows:
            await until(lambda: names(flows) == ["orders"] and FLOW in server.watches)
            server.delete("orders")
            server.send(FLOW, "ERROR", GONE)
            await until(lambda: server.watches.count(FLOW) == 2)
            await until(lambda: not flows.objects() and not flows.queue_length())

    asyncio.run(test())


def test_events_of_flows_are_stored_in_the_order_of_their_versions(kubeconfig: Path) -> None:
    async def test() -> None:
        server = Server()
        async with handling(server, kubeconfig, list_every_s=NEVER_S) as flows:
            await until(lambda: FLOW in server.watches and server.lists.count(FLOW) == 2)
            older = server.put(flow("orders"))
            newer = server.put(flow("orders"))
            server.send(FLOW, "ADDED", newer)
            await until(lambda: names(flows) == ["orders"])
            server.send(FLOW, "DELETED", older)  # the flow was created again
            server.send(FLOW, "ADDED", server.put(flow("payments")))
            await until(lambda: names(flows) == ["orders", "payments"])
            assert flows.objects()[0]["metadata"]["uid"] == newer["metadata"]["uid"]
            server.send(FLOW, "DELETED", newer)
            await until(lambda: names(flows) == ["payments"])

    asyncio.run(test())


@asynccontextmanager
async def operating(
    server: Server, kubeconfig: Path, options: OperatorOptions
) -> AsyncIterator[None]:
    """Run an operator until the block ends."""
    async with serving(server.answer) as url:
        write_kubeconfig(kubeconfig, url, None, {"token": "any"})
        running = asyncio.create_task(run_operator(options))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])


def test_error_in_a_watch_is_logged_and_all_watches_begin_again(kubeconfig: Path) -> None:
    async def test() -> None:
        server = Server()
        async with operating(server, kubeconfig, OPTIONS):
            # The check of permissions opens the first watch of each kind.
            await until(lambda: all(server.watches.count(kind) == 2 for kind in server.kinds))
            server.send(DEPLOYMENT, "ERROR", NO_LEADER)
            await until(lambda: all(server.watches.count(kind) >= 4 for kind in server.kinds))

    with capture_logs() as lines:
        asyncio.run(test())
    (line,) = [one for one in lines if one["event"] == "watches end and begin again"]
    assert line["why"].startswith("the operator can no longer watch: Error in the watch-stream: ")
    assert "no leader of etcd" in line["why"]


def test_definition_of_mirror_tests_that_is_added_later_is_watched(kubeconfig: Path) -> None:
    async def test() -> None:
        server = Server(JOB, CONFIG_MAP)
        settings = TestSettings(Images("spark:1", "headrace:1", "Always"))
        async with operating(server, kubeconfig, replace(OPTIONS, tests=settings)):
            await until(lambda: server.watches.count(FLOW) == 2)
            server.kinds.append(MIRROR_TEST)
            await until(lambda: server.watches.count(MIRROR_TEST) == 2)

    asyncio.run(test())
