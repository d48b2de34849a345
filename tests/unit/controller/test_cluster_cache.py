"""The operator's view of the cluster, if events arrive late, twice or concern other objects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from headrace.assign import TaskId
from headrace.controller.assignment import ObjectAssignment
from headrace.controller.cluster_cache import ClusterCache, UnitCache
from headrace.controller.events import EventRecorder
from headrace.controller.flow_writer import FlowWrites
from headrace.controller.target_topics import FlowName
from headrace.k8s import Client, Conflict, Kind, LeaseWatch, Object, Objects
from headrace.k8s.kinds import FLOW as FLOW_KIND
from headrace.k8s.kinds import POD, TASK, kind_of

FLOW = ("shop", "orders")


class Watched:
    """API server that reports scripted events of units and pods. Flows are only listed."""

    def __init__(self, *units: Object) -> None:
        self.units = list(units)
        self.events = {kind: asyncio.Queue[tuple[str, Object]]() for kind in (TASK, POD)}
        self.flows: Objects = []
        self.flow_lists = 0

    async def list_versioned(self, kind: Kind, *_: Any, **__: Any) -> tuple[Objects, str]:
        self.flow_lists += kind is FLOW_KIND
        return {TASK: self.units, FLOW_KIND: list(self.flows)}.get(kind, []), "100"

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return next((unit for unit in self.units if unit["metadata"]["name"] == name), None)

    async def apply(self, object: Object, *, manager: str) -> Object:
        raise Conflict("it changed")

    async def watch(self, kind: Kind, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        yield "CONNECTED", {}
        while kind in self.events:
            yield await self.events[kind].get()
        await asyncio.Event().wait()


class Leases(LeaseWatch):
    """Watch over Leases that shows which Leases it expects."""

    expected: Mapping[tuple[str, str], float] = {}

    def expect(self, durations_s: Mapping[tuple[str, str], float]) -> None:
        self.expected = durations_s
        super().expect(durations_s)


class Seen:
    """Cache, with the flows that it has queued."""

    def __init__(self, watched: Watched) -> None:
        self.watched, self.wanted = watched, list[FlowName]()
        self.cache = ClusterCache(
            cast(Client, watched),
            None,
            lambda name, _: self.wanted.append(name),
            list_every_s=0.01,
            make_lease_watch=self._watch_leases,
        )

    def _watch_leases(self, *of: Any, **options: Any) -> Leases:
        self.leases = Leases(*of, **options)
        self.report_leases: Callable[[], None] = options["on_change"]
        return self.leases

    def units(self, flow: FlowName = FLOW) -> dict[str, str]:
        """Return the driver of each unit."""
        there = self.cache.tasks(self.cache.in_force(flow).flow)
        return {task.metadata.name: task.spec.driver_name for task in there}

    async def send(self, type: str, object: Object) -> None:
        """Send an event, and wait until it is processed."""
        self.wanted.clear()
        await self.watched.events[kind_of(object)].put((type, object))
        await until(lambda: self.wanted)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def run(test: Callable[[Seen], Awaitable[None]], *units: Object) -> None:
    @asynccontextmanager
    async def watching() -> AsyncIterator[Seen]:
        seen = Seen(Watched(*units))
        running = asyncio.create_task(seen.cache.run())
        await until(lambda: seen.cache.is_complete)
        yield seen
        running.cancel()

    async def main() -> None:
        async with watching() as seen:
            await test(seen)

    asyncio.run(main())


async def relist_flows(seen: Seen, *flows: Object) -> None:
    """Let the next list contain these flows."""
    seen.watched.flows, before = list(flows), seen.watched.flow_lists
    await until(lambda: seen.watched.flow_lists > before)


def flow(uid: str = "1", name: str = "orders", version: int = 1) -> Object:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid,
            "resourceVersion": str(version),
            "creationTimestamp": f"2026-01-0{uid}T00:00:00Z",
        },
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "e:9092"},
            "target": {"alias": "west", "bootstrapServers": "w:9092"},
            "topics": {"include": [".*"]},
        },
    }


def unit(
    index: int,
    *,
    of: str = "orders",
    owner: str = "1",
    version: int = 1,
    driver: str = "",
    name: str = "",
    writes: str = "",
) -> Object:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationTask",
        "metadata": {
            "name": name or TaskId(of, "SourceTask", index).name,
            "namespace": "shop",
            "resourceVersion": str(version),
            "labels": {"headrace.dev/target-cluster": "k"},
            "annotations": {"headrace.dev/target-topics": writes},
            "ownerReferences": [{"uid": owner, "kind": "ReplicationFlow", "name": of}],
        },
        "spec": {"flowName": of, "type": "SourceTask", "index": index, "driverName": driver},
    }


def pod(of: str) -> Object:
    return {
        "apiVersion": POD.api_version,
        "kind": POD.name,
        "metadata": {
            "name": f"{of}-driver-a",
            "namespace": "shop",
            "resourceVersion": "1",
            "labels": {"headrace.dev/flow": of},
        },
    }


def test_an_answer_that_comes_late_does_not_replace_what_a_watch_told_since() -> None:
    async def test(seen: Seen) -> None:
        seen.cache.put_flow(flow())
        seen.cache.put_task(unit(0, version=11, driver="b"))
        assert seen.units() == {"orders-source-task-0": "b"}, "a moment before its watch"
        await seen.send("MODIFIED", unit(0, version=12, driver="c"))
        seen.cache.put_task(unit(0, version=11, driver="b"))
        assert seen.units() == {"orders-source-task-0": "c"}
        await seen.send("DELETED", unit(0, version=13))
        seen.cache.put_task(unit(0, version=12, driver="c"))
        assert seen.units() == {}

    run(test, unit(0, version=9, driver="a"))


def test_labels_that_somebody_took_off_are_not_left_to_a_later_reconcile() -> None:
    units, as_it_was = UnitCache(), unit(0)
    units.put(as_it_was)
    assert units.put(as_it_was | {"status": {"lag": {"records": 7}}}).of_figures_only
    bare = as_it_was | {"metadata": as_it_was["metadata"] | {"labels": {}}}
    assert not units.put(bare).of_figures_only


def test_a_write_that_is_refused_as_too_late_is_not_repeated_as_it_was() -> None:
    async def test(seen: Seen) -> None:
        seen.cache.put_flow(flow())
        seen.watched.units[:] = [unit(0, version=10, driver="b")]  # its watch is behind
        client = cast(Client, seen.watched)
        writes = FlowWrites(client, seen.cache, EventRecorder(client, "operator"))
        task = seen.cache.tasks(seen.cache.in_force(FLOW).flow)[0]
        assert not await writes.assign([ObjectAssignment(task, "c", (), "")])
        assert seen.units() == {"orders-source-task-0": "b"}

    run(test, unit(0, version=9, driver="a"))


def test_units_of_another_flow_or_of_another_name_than_they_say_are_left_out() -> None:
    stray = (
        unit(1, owner="7", writes="east.a"),  # unit of an earlier flow
        unit(0, name="a-copy-by-hand", writes="east.b"),
        unit(2, name="orders-source-task-9", writes="east.c"),
    )

    async def test(seen: Seen) -> None:
        seen.cache.put_flow(flow())
        assert seen.units() == {"orders-source-task-0": "a"}
        assert seen.cache.written(FLOW) == {("k", "east.x")}

    run(test, unit(0, driver="a", writes="east.x"), *stray)


def test_the_end_of_an_earlier_flow_of_the_name_is_not_that_of_the_new_one() -> None:
    async def test(seen: Seen) -> None:
        old, new = flow("1", version=5), flow("2", version=9)
        seen.cache.put_flow(old)
        assert seen.cache.written(FLOW) == {("k", "east.a")}
        seen.cache.put_flow(new)
        assert seen.units() == {"orders-source-task-1": ""}
        assert seen.cache.written(FLOW) == {("k", "east.b")}
        seen.cache.put_flow(flow("1", version=6))  # a late answer
        seen.cache.drop_flow(old)
        assert seen.cache.in_force(FLOW).flow.metadata.uid == "2"
        seen.cache.drop_flow(new)
        assert seen.cache.flow_object(FLOW) is None

    run(test, unit(0, owner="1", writes="east.a"), unit(1, owner="2", writes="east.b"))


def test_a_deletion_that_no_watch_reported_is_noticed_by_the_next_list() -> None:
    async def test(seen: Seen) -> None:
        await relist_flows(seen, flow(), flow(name="payments"))
        await until(lambda: len(seen.cache.flow_objects()) == 2)
        assert set(seen.wanted) == {FLOW, ("shop", "payments")}
        seen.wanted.clear()
        await relist_flows(seen, flow(name="payments"))
        await until(lambda: seen.wanted)
        assert seen.wanted == [FLOW]
        assert seen.cache.flow_object(FLOW) is None
        assert seen.cache.flow_object(("shop", "payments")) is not None

    run(test)


def test_a_flow_that_was_made_again_while_nobody_watched_is_another_one() -> None:
    async def test(seen: Seen) -> None:
        await relist_flows(seen, flow("1", version=5))
        await until(lambda: seen.units() == {"orders-source-task-0": ""})
        await relist_flows(seen, flow("2", version=9))
        await until(lambda: seen.units() == {"orders-source-task-1": ""})
        assert seen.cache.in_force(FLOW).flow.metadata.uid == "2"

    run(test, unit(0, owner="1"), unit(1, owner="2"))


def test_flows_that_wait_for_a_target_topic_are_woken_when_it_is_taken_or_freed() -> None:
    first, later, far = ("shop", "first"), ("shop", "later"), ("shop", "far")
    of_first = unit(0, of="first", writes="east.a")

    async def test(seen: Seen) -> None:
        for name in (first, later, far):
            seen.cache.put_flow(flow("1", name[1]))

        def woken_by(name: FlowName) -> list[FlowName]:
            seen.wanted.clear()
            seen.cache.requeue_rivals(name)
            return seen.wanted

        assert woken_by(first) == [later], "taken"
        assert woken_by(first) == [], "nothing changed"
        await seen.send("MODIFIED", of_first | {"metadata": of_first["metadata"] | {
            "annotations": {"headrace.dev/target-topics": "east.b"}, "resourceVersion": "2"
        }})  # fmt: skip
        assert woken_by(first) == [later], "freed"
        await seen.send("MODIFIED", unit(0, of="first", writes="east.a", version=3))
        assert woken_by(first) == [later]
        seen.cache.drop_flow(flow("1", "first"))
        assert woken_by(first) == [later], "gone"

    run(test, of_first, unit(0, of="later", writes="east.a"), unit(0, of="far", writes="east.z"))


def test_a_driver_without_a_lease_gets_as_long_as_its_flow_says() -> None:
    async def test(seen: Seen) -> None:
        leases = seen.leases
        await seen.send("ADDED", pod("orders"))
        assert leases.expected == {}, "of a flow that is not known"
        patient = flow()
        patient["spec"]["drivers"] = {"leaseSeconds": 60}
        seen.cache.put_flow(patient)
        assert leases.expected == {("shop", "orders-driver-a"): 60}
        seen.cache.put_flow(flow(version=2))
        assert leases.expected == {("shop", "orders-driver-a"): 6}

    run(test)


def mentions(kept: object, text: str, path: str = "") -> list[str]:
    """Return the paths to strings with ``text`` in an object of headrace or a container."""
    if isinstance(kept, str):
        return [f"{path}: {kept}"] if text in kept else []
    if isinstance(kept, Mapping):
        inside = [(f"{path}[{key}]", pair) for key, pair in kept.items()]
        inside += [(f"{path} keys", key) for key in kept]
    elif isinstance(kept, list | tuple | set | frozenset):
        inside = [(path, one) for one in kept]
    elif type(kept).__module__.startswith("headrace."):
        inside = [(f"{path}.{name}", value) for name, value in vars(kept).items()]
    else:
        inside = []
    return [found for deeper, one in inside for found in mentions(one, text, deeper)]


def test_nothing_of_a_deleted_flow_is_kept() -> None:
    name = ("shop", "payments")
    invalid = unit(1, of="payments")
    invalid["spec"]["driverName"] = 7
    units = (unit(0, of="payments", writes="east.a"), invalid)

    async def test(seen: Seen) -> None:
        await relist_flows(seen, flow(name="payments"))
        await until(lambda: seen.cache.invalid_unit(name))
        await seen.send("ADDED", pod("payments"))
        seen.report_leases()
        assert seen.cache.written(name) == {("k", "east.a")}
        assert seen.cache.copied(name).target_cluster_id == "k"
        seen.cache.requeue_rivals(name)
        await relist_flows(seen)
        await until(lambda: seen.cache.flow_object(name) is None)
        seen.cache.requeue_rivals(name)
        seen.cache.copied(name)
        for object in (*units, pod("payments")):
            await seen.send("DELETED", object)
        for _ in range(3):  # later lists could still contain the flow
            await relist_flows(seen)
        assert mentions(seen.cache, "payments") == []

    run(test, *units)


def test_leases_of_a_flow_without_pods_do_not_queue_it() -> None:
    async def test(seen: Seen) -> None:
        seen.cache.put_flow(flow())
        await seen.send("ADDED", pod("orders"))
        seen.report_leases()
        await seen.send("DELETED", pod("orders"))
        seen.wanted.clear()
        seen.report_leases()
        assert seen.wanted == []

    run(test)
