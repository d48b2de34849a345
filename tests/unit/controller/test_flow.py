"""Reconciles of a flow on an API server in memory: units are placed despite other failures."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.api import ReplicationFlow
from headrace.assign import TaskId
from headrace.controller.children import Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.drivers import DriverLease
from headrace.controller.events import EventRecorder
from headrace.controller.flow_children import FlowSettings, Rollouts
from headrace.controller.flow_reconciler import FlowReconciler
from headrace.controller.flow_writer import FlowWrites
from headrace.controller.resources import build_deployment, template_hash
from headrace.controller.target_topics import FlowName
from headrace.errors import HeadraceError
from headrace.k8s import DEPLOYMENT, LEASE, REPLICA_SET, Client, Kind, Object, Objects, Unavailable
from headrace.k8s.kinds import FLOW, POD, TASK, kind_of

NAME = ("shop", "orders")
SETTINGS = FlowSettings("image")
UNIT = TaskId("orders", "SourceTask", 0).name
HOOK = Unavailable('the API server answers 500: failed calling webhook "guard.example"')


class Server:
    """API server with one namespace, whose watches report the first renewal of Leases."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {(kind_of(one), one["metadata"]["name"]): one for one in objects}
        self.admit: Callable[[], Awaitable[None]] = _at_once
        """Effect of a webhook on Deployments."""

    async def list_versioned(self, kind: Kind, *_: Any, **__: Any) -> tuple[Objects, str]:
        return [deepcopy(one) for (of, _), one in self.objects.items() if of is kind], "1"

    async def list(self, kind: Kind, *_: Any, **__: Any) -> Objects:
        return (await self.list_versioned(kind))[0]

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return deepcopy(self.objects.get((kind, name)))

    async def create(self, object: Object) -> Object:
        return object

    async def apply(self, object: Object, *, manager: str, subresource: str = "") -> Object:
        kind, name = kind_of(object), object["metadata"]["name"]
        if kind is DEPLOYMENT:
            await self.admit()
        there = self.objects.setdefault((kind, name), deepcopy(object))
        part = subresource or "spec"
        there[part] = there.get(part, {}) | deepcopy(object.get(part, {}))
        version = int(there["metadata"].get("resourceVersion") or 0) + 1
        there["metadata"]["resourceVersion"] = str(version)
        return deepcopy(there)

    async def watch(self, kind: Kind, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        yield "CONNECTED", {}
        for (of, _), one in list(self.objects.items()):
            if of is LEASE and kind is LEASE:
                spec = one["spec"] | {"renewTime": "2026-01-01T00:00:02.000000Z"}
                yield "MODIFIED", one | {"spec": spec}
        await asyncio.Event().wait()


async def _at_once() -> None:
    pass


async def _refused() -> None:
    raise HOOK


def replica_set(name: str, revision: int) -> Object:
    """Return a ReplicaSet as the Deployment controller creates it, named by its pods' hash."""
    revisions = {"deployment.kubernetes.io/revision": str(revision)}
    return object_of(
        REPLICA_SET,
        name,
        metadata={"labels": {"pod-template-hash": name}, "annotations": revisions},
    )


def object_of(kind: Kind, name: str, **more: Any) -> Object:
    metadata = {"name": name, "namespace": "shop", "resourceVersion": "1"}
    metadata |= more.pop("metadata", {})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **more}


ORDERS = object_of(
    FLOW,
    "orders",
    metadata={"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
    spec={
        "source": {"alias": "east", "bootstrapServers": "e:9092"},
        "target": {"alias": "west", "bootstrapServers": "w:9092"},
        "topics": {"include": [".*"]},
        "drivers": {"replicas": 1, "leaseSeconds": 600},
    },
)


def a_driver(name: str, replica_set: str = "1") -> tuple[Object, Object]:
    """Return a pod with the operator's current template, and its Lease."""
    template = template_hash(build_deployment(ReplicationFlow.model_validate(ORDERS), "image"))
    labels = {
        "headrace.dev/flow": "orders",
        "app.kubernetes.io/component": "driver",
        "headrace.dev/template": template,
        "pod-template-hash": replica_set,
    }
    lease = {"holderIdentity": f"{name}/1", "leaseDurationSeconds": 600}
    return (
        object_of(POD, name, metadata={"labels": labels}, status={"phase": "Running"}),
        object_of(LEASE, name, spec=lease),
    )


def a_flow_whose_driver_is_gone(*others: Object) -> Server:
    """Driver ``a`` was lost with its unit; ``b`` is alive."""
    owner = {"uid": "1", "kind": "ReplicationFlow", "name": "orders"}
    return Server(
        deepcopy(ORDERS),
        object_of(
            TASK,
            UNIT,
            metadata={"ownerReferences": [owner]},
            spec={"flowName": "orders", "type": "SourceTask", "index": 0, "driverName": "a"},
            status={"phase": "Running", "driverName": "a", "incarnation": "1"},
        ),
        *a_driver("b"),
        *others,
    )


class Reconciled:
    """Flow of a server, with its reconciler."""

    def __init__(self, server: Server, settings: FlowSettings, rollouts: int) -> None:
        client, self.server = cast(Client, server), server
        self.queued: list[FlowName] = []
        self.cache = ClusterCache(client, None, lambda *_: None)
        self.children = Children(client)
        self.reconciler = FlowReconciler(
            self.cache,
            self.children,
            FlowWrites(client, self.cache, EventRecorder(client, "operator")),
            settings,
            lambda name, _: self.queued.append(name),
            rollouts=Rollouts(rollouts, self.cache.flow_names, lambda _: None),
        )

    async def reconcile(self) -> HeadraceError | None:
        """Reconcile once. The queue would retry after an error."""
        try:
            async with asyncio.timeout(60):
                await self.reconciler.reconcile(NAME)
        except HeadraceError as error:
            return error
        return None

    def leases(self) -> list[DriverLease]:
        """Return the Leases of all drivers."""
        return list(self.cache.leases(NAME).values())

    @property
    def driver(self) -> str:
        found: str = self.server.objects[TASK, UNIT]["spec"]["driverName"]
        return found

    @property
    def ready(self) -> tuple[str, str]:
        """Return the reason and the message of the condition Ready."""
        conditions = self.server.objects[FLOW, "orders"]["status"]["conditions"]
        ready = next(one for one in conditions if one["type"] == "Ready")
        return ready["reason"], ready["message"]


@asynccontextmanager
async def operated(
    server: Server, settings: FlowSettings = SETTINGS, rollouts: int = 0
) -> AsyncIterator[Reconciled]:
    it = Reconciled(server, settings, rollouts)
    watching = asyncio.create_task(it.cache.run())
    async with asyncio.timeout(60):
        while not (it.cache.is_complete and all(one.renewed for one in it.leases())):
            await asyncio.sleep(0.01)
    yield it
    it.reconciler.close()
    watching.cancel()


def test_units_of_a_flow_whose_records_would_go_round_wait_for_the_end_of_the_other_one() -> None:
    def source_task(name: str, uid: str, *clusters: str, **more: Any) -> Object:
        keys = ("headrace.dev/source-cluster", "headrace.dev/target-cluster")
        owner = {"uid": uid, "kind": "ReplicationFlow", "name": name}
        return object_of(
            TASK,
            TaskId(name, "SourceTask", 0).name,
            metadata={
                "labels": dict(zip(keys, clusters, strict=True)), "ownerReferences": [owner],
                "resourceVersion": "2",
            },
            spec={
                "flowName": name, "type": "SourceTask", "index": 0, "driverName": "",
                "partitions": [{"topic": "x", "partitions": "0"}],
            },
            **more,
        )  # fmt: skip

    back = object_of(
        FLOW,
        "back",
        metadata={"uid": "2", "creationTimestamp": "2025-01-01T00:00:00Z", "generation": 1},
        spec={
            "source": {"alias": "west", "bootstrapServers": "w.internal:9092"},
            "target": {"alias": "east", "bootstrapServers": "e.internal:9092"},
            "topics": {"include": ["east.*"]},
            "replicationPolicy": {"type": "Identity"},
        },
    )

    async def test() -> None:
        server = Server(
            deepcopy(ORDERS), source_task("orders", "1", "E", "W"),
            back, source_task("back", "2", "W", "E"), *a_driver("b"),
        )  # fmt: skip
        async with operated(server) as it:
            assert await it.reconcile() is None
            assert it.ready[0] == "ReplicationLoop"
            assert "copies it as east.x, flow back of namespace shop copies that" in it.ready[1]
            assert it.driver == ""
            metadata = back["metadata"] | {"resourceVersion": "3"}
            stopped = back["spec"] | {"state": "Stopped"}
            it.queued.clear()
            it.cache.put_flow(back | {"metadata": metadata, "spec": stopped})
            await it.reconciler.reconcile(("shop", "back"))
            assert it.queued == [NAME]
            assert await it.reconcile() is None
            assert it.driver == "b"
            assert it.ready[0] != "ReplicationLoop"

    asyncio.run(test())


WRONG = {"pausedPartitions": [{"topic": "orders", "partitions": "3-0"}]}


def edit(it: Reconciled, **spec: Any) -> None:
    """Edit the flow as a user does; the watch reports it."""
    flow = it.server.objects[FLOW, "orders"]
    flow["spec"] |= spec
    metadata = flow["metadata"]
    metadata["resourceVersion"] += "0"
    metadata["generation"] += 1
    it.cache.put_flow(deepcopy(flow))


def test_last_valid_spec_stays_in_force_after_an_invalid_edit() -> None:
    async def test() -> None:
        server = a_flow_whose_driver_is_gone()
        async with operated(server) as it:
            edit(it, **WRONG, drivers={"replicas": 3, "leaseSeconds": 600})
            assert await it.reconcile() is None
            assert it.driver == "b", "units of a lost driver are assigned"
            assert server.objects[DEPLOYMENT, "orders-driver"]["spec"]["replicas"] == 1
            reason, message = it.ready
            assert reason == "InvalidSpec"
            assert "spec.pausedPartitions.0.partitions" in message
            assert "the spec of generation 1 stays in force" in message
            status = server.objects[FLOW, "orders"]["status"]
            assert status["lastValid"]["generation"] == 1
            assert status["tasks"]["total"] == 1, "the flow is observed"
            edit(it, pausedPartitions=[])
            assert await it.reconcile() is None
            assert it.ready[0] != "InvalidSpec"
            assert server.objects[DEPLOYMENT, "orders-driver"]["spec"]["replicas"] == 3

    asyncio.run(test())


def test_operator_that_starts_later_takes_the_last_valid_spec_from_the_status() -> None:
    async def test() -> None:
        server = a_flow_whose_driver_is_gone()
        async with operated(server) as it:
            edit(it, **WRONG, drivers={"replicas": 3, "leaseSeconds": 600})
            assert await it.reconcile() is None
        server.objects[TASK, UNIT]["spec"]["driverName"] = "a"
        async with operated(server) as it:
            assert await it.reconcile() is None
            assert it.driver == "b"
            assert server.objects[DEPLOYMENT, "orders-driver"]["spec"]["replicas"] == 1
            assert "generation 1 stays in force" in it.ready[1]

    asyncio.run(test())


def test_units_are_assigned_though_no_valid_spec_is_known() -> None:
    """The edit was made while no operator ran: the flow's objects stay unchanged."""

    async def test() -> None:
        server = a_flow_whose_driver_is_gone()
        server.objects[FLOW, "orders"]["spec"] |= WRONG
        async with operated(server) as it:
            assert await it.reconcile() is None
            assert it.driver == "b"
            assert (DEPLOYMENT, "orders-driver") not in server.objects
            assert it.ready[0] == "InvalidSpec"
            assert "units of lost drivers are assigned" in it.ready[1]
            assert "lastValid" not in server.objects[FLOW, "orders"]["status"]

    asyncio.run(test())


def test_later_flow_takes_no_topic_of_a_flow_whose_spec_is_invalid() -> None:
    async def test() -> None:
        server = a_flow_whose_driver_is_gone()
        server.objects[TASK, UNIT]["metadata"] |= {
            "labels": {"headrace.dev/target-cluster": "W"},
            "annotations": {"headrace.dev/target-topics": "east.orders"},
        }
        async with operated(server) as it:
            before = it.cache.written(NAME)
            assert before
            edit(it, **WRONG)
            assert it.cache.written(NAME) == before

    asyncio.run(test())


def test_a_value_of_a_newer_version_is_refused_until_it_is_taken_out() -> None:
    """Its definition (CRD), and perhaps the status of another one, is already in the cluster."""

    async def test() -> None:
        server = a_flow_whose_driver_is_gone()
        flow = server.objects[FLOW, "orders"]
        before = {"type": "Ready", "status": "True", "reason": "OfAnotherVersion", "message": "x"}
        flow["status"] = {"conditions": [before]}
        async with operated(server) as it:
            edit(it, delivery={"mode": "AtMostOnce"}, drivers={"replicas": 2, "leaseSeconds": 600})
            assert await it.reconcile() is None
            reason, message = it.ready
            assert reason == "InvalidSpec"
            assert "spec.delivery.mode: Input should be 'AtLeastOnce' or 'ExactlyOnce'" in message
            assert "if a newer version has it, its definition (CRD) and this program" in message
            assert server.objects[DEPLOYMENT, "orders-driver"]["spec"]["replicas"] == 1
            edit(it, delivery={"mode": "ExactlyOnce"})
            assert await it.reconcile() is None
            assert it.ready[0] != "InvalidSpec"
            assert server.objects[DEPLOYMENT, "orders-driver"]["spec"]["replicas"] == 2

    asyncio.run(test())


def test_units_of_a_lost_driver_move_though_a_child_cannot_be_applied() -> None:
    async def test() -> None:
        server = a_flow_whose_driver_is_gone()
        server.admit = _refused
        async with operated(server) as it:
            assert await it.reconcile() is HOOK, "the queue tries again"
            assert it.driver == "b"
            assert await it.reconcile() is HOOK
            assert it.ready[0] != "NotApplied", "it may pass by itself"
            assert await it.reconcile() is HOOK
            reason, message = it.ready
            assert reason == "NotApplied"
            assert 'failed calling webhook "guard.example"' in message
            server.admit = _at_once
            assert await it.reconcile() is None
            assert it.ready[0] != "NotApplied"
            assert (DEPLOYMENT, "orders-driver") in server.objects

    asyncio.run(test())


def test_units_move_while_a_webhook_lets_the_operator_wait() -> None:
    async def test() -> None:
        server, late = a_flow_whose_driver_is_gone(), asyncio.Event()

        async def hangs() -> None:
            await late.wait()
            raise HOOK

        server.admit = hangs
        async with operated(server, replace(SETTINGS, answer_timeout_s=0.05)) as it:
            assert await it.reconcile() is None
            assert it.driver == "b"
            assert it.queued == []
            late.set()
            async with asyncio.timeout(60):
                while not it.queued:
                    await asyncio.sleep(0.01)
            assert await it.reconcile() is HOOK, "the failure of the attempt before"

    asyncio.run(test())


def test_units_move_while_the_reconciliation_is_paused() -> None:
    async def test() -> None:
        server = a_flow_whose_driver_is_gone()
        pause = {"headrace.dev/pause-reconciliation": "True"}
        server.objects[FLOW, "orders"]["metadata"]["annotations"] = pause
        async with operated(server) as it:
            assert await it.reconcile() is None
            assert it.driver == "b"
            assert (DEPLOYMENT, "orders-driver") not in server.objects
            status = server.objects[FLOW, "orders"]["status"]
            assert "observedGeneration" not in status, "nothing was done about the spec"
            paused = next(c for c in status["conditions"] if c["type"] == "ReconciliationPaused")
            assert paused["status"] == "True"
            pause.clear()
        async with operated(server) as it:
            assert await it.reconcile() is None
            assert (DEPLOYMENT, "orders-driver") in server.objects
            status = server.objects[FLOW, "orders"]["status"]
            assert status["observedGeneration"] == 1
            types = {one["type"] for one in status["conditions"]}
            assert "ReconciliationPaused" not in types

    asyncio.run(test())


def test_drivers_stay_as_they_are_until_it_is_their_turn() -> None:
    """The rest of their Deployment is applied: a user scales the flow during that time."""

    async def test() -> None:
        first = deepcopy(ORDERS)
        first["metadata"] |= {"name": "another", "uid": "2"}
        server = a_flow_whose_driver_is_gone(first)
        async with operated(server) as it:
            assert await it.reconcile() is None
        before = deepcopy(server.objects[DEPLOYMENT, "orders-driver"]["spec"]["template"])
        server.objects[FLOW, "orders"]["spec"]["drivers"]["replicas"] = 3
        settings = FlowSettings("image of the next version")
        async with operated(server, settings, rollouts=1) as it:
            deployment = server.objects[DEPLOYMENT, "orders-driver"]
            it.children.observe(deployment, deleted=False)
            assert await it.reconcile() is None
            assert deployment["spec"]["replicas"] == 3
            assert deployment["spec"]["template"] == before
            conditions = server.objects[FLOW, "orders"]["status"]["conditions"]
            available = next(one for one in conditions if one["type"] == "DriversAvailable")
            assert available["message"].endswith("their roll-out waits for its turn")
            assert it.driver == "b", "its units are looked after"
            await it.reconciler.reconcile(("shop", "another"))
            assert await it.reconcile() is None
            container = deployment["spec"]["template"]["spec"]["containers"][0]
            assert container["image"] == "image of the next version"

    asyncio.run(test())


def test_a_pinned_image_stays_when_the_operator_changes_its_own() -> None:
    pinned = deepcopy(ORDERS)
    pinned["spec"]["drivers"]["image"] = "mine"
    hashes = {
        template_hash(build_deployment(ReplicationFlow.model_validate(flow), image))
        for flow, image in ((pinned, "1"), (pinned, "2"))
    }
    assert len(hashes) == 1
    made = build_deployment(ReplicationFlow.model_validate(pinned), "1")
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "mine"


@pytest.mark.parametrize("newest", ["b", "c"])
def test_in_a_restart_by_kubectl_units_move_to_the_newest_pods_only(newest: str) -> None:
    """The operator's hash of both is equal. `kubectl rollout undo` makes the older one newest."""
    revisions = {"b": (3, 2), "c": (1, 2)}[newest]

    async def test() -> None:
        sets = [replica_set(name, revision) for name, revision in zip("12", revisions, strict=True)]
        server = a_flow_whose_driver_is_gone(*a_driver("c", "2"), *sets)
        async with operated(server) as it:
            await it.reconcile()
            assert it.driver == newest

    asyncio.run(test())
