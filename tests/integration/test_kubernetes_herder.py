"""Driver processes on a real API server with real brokers; the test itself is the scheduler."""

import asyncio
import itertools
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import eq
from typing import Any
from urllib.parse import urlsplit

import pytest
from cluster.api_server import ApiServer, OwnApiServer
from support.flows import manifest, spec
from support.patience import WITHIN_S
from support.pods import Driver, Scene, scene
from support.proxy import Proxy
from support.records import Load, compare, count, make_topic, read, unique

from headrace.api import ReplicationFlow, ReplicationTask, TaskPhase, TaskType
from headrace.api.labels import CONNECTOR_MANAGER
from headrace.assign import TaskId
from headrace.connect import DriverIdentity, Worker
from headrace.connect.source.source_task import SourceTask
from headrace.driver.kubernetes_herder import KubernetesHerder, TaskBuilder
from headrace.errors import Fatal
from headrace.k8s import Object, ObjectInvalid, connect_by_file, parse
from headrace.k8s.kinds import FLOW
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
PARTITIONS = 4


@contextmanager
def flow_under_load(
    server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
    *,
    standbys: int = 0,
) -> Iterator[Scene]:
    """Yield two drivers with four tasks; then check that nothing is missing."""
    name = unique("pods")
    topic = make_topic(spec(east), name, PARTITIONS)
    tasks = {"max": PARTITIONS, "standbys": standbys}
    flow = manifest(name, east, west, topic, heartbeats={"enabled": False}, tasks=tasks)
    with scene(server, namespace, flow) as made:
        with Load(spec(east), topic, PARTITIONS, per_second=500):
            for driver in ("a", "b"):
                made.start_driver(driver)
            wait_until(lambda: all(d.ready for d in made.drivers.values()))
            settle(made, wait_until, "a", "b")
            yield made
        wait_until(
            lambda: [
                (unit.get("status", {}).get("conditions") or [{}])[0].get("status")
                for unit in made.units("SourceTask")
            ],
            until=lambda caught_up: caught_up == ["True"] * PARTITIONS,
        )
        total = sum(map(len, read(spec(east), topic).values()))
        result = wait_until(
            lambda: compare(read(spec(east), topic), read(spec(west), f"east.{topic}")),
            until=lambda result: result.missing == 0,
        )
        assert result.in_order
        print(f"{name}: {total} records, 0 missing, {result.repeated} repeated")


def settle(made: Scene, wait_until: WaitUntil, *drivers: str) -> None:
    """Wait until all tasks run on these, and only these, drivers."""

    def owners() -> dict[str, str]:
        made.spread(*drivers)
        return made.running()

    wait_until(owners, until=lambda on: len(on) == PARTITIONS and set(on.values()) == set(drivers))


def reported_lost(driver: Driver) -> set[str]:
    """Return the units that it found lost by a report, by progress, or on release."""
    words = '(?:lost|"stopped: not ours any more"|"could not release")'
    return set(re.findall(rf"event={words} .*?task=(\S+)", driver.log.read_text()))


def test_claims_moves_and_lets_go(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    with flow_under_load(api_server, namespace, east, west, wait_until, standbys=1) as made:
        before, epochs = made.running(), made.epochs()
        task = min(before)
        other = next(driver for driver in ("a", "b") if driver != before[task])
        made.assign(task, other)
        wait_until(lambda: made.running().get(task) == other)
        after = wait_until(made.epochs)
        assert {name for name, epoch in after.items() if epoch != epochs[name]} == {task}

        made.patch(
            task,
            {
                "metadata": {"labels": {f"standby.headrace.dev/{before[task]}": ""}},
                "spec": {"standbyDriverNames": [before[task]]},
            },
        )
        wait_until(
            made.drivers[before[task]].log.read_text, until=lambda log: "role=Standby" in log
        )

        restarted = wait_until(made.epochs)[task]
        made.patch(task, {"metadata": {"annotations": {"headrace.dev/restart": "please"}}})
        wait_until(lambda: made.epochs().get(task, 0) > restarted)
        wait_until(lambda: len(made.running()) == PARTITIONS)
        annotations = wait_until(
            lambda: made.unit(task)["metadata"]["annotations"],
            until=lambda left: "headrace.dev/restart" not in left,
        )
        assert f"east.{made.name}" in annotations["headrace.dev/target-topics"].split("\n")
        assert made.log().count("restart requested") == 1

        # An unknown driver's status: no driver runs a unit that another claims, until the time-out.
        made.patch(
            f"{task}/status",
            {"status": {"driverName": "stranger", "driverIncarnation": "x", "epoch": 99}},
        )
        wait_until(lambda: made.epochs().get(task, 0) > 99)
        wait_until(lambda: made.running().get(task) == other)

        # TERM: all units are released, the Lease is deleted; the other driver continues.
        assert made.drivers["a"].end() == 0
        units = wait_until(made.units)
        assert not [u for u in units if u.get("status", {}).get("driverName") == "a"]
        leases = api_server.get("-n", namespace, "leases")["items"]
        assert [lease["metadata"]["name"] for lease in leases] == ["b"]
        for unit in units:
            made.assign(unit["metadata"]["name"], "b")
        settle(made, wait_until, "b")


def test_what_is_edited_or_deleted_by_hand_is_put_right(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    with flow_under_load(api_server, namespace, east, west, wait_until) as made:

        def split() -> dict[str, Any]:
            units = made.units("SourceTask")
            return {unit["metadata"]["name"]: unit["spec"]["partitions"] for unit in units}

        right = wait_until(split)
        edited, deleted, *_ = sorted(right)
        made.patch(edited, {"spec": {"partitions": [{"topic": made.name, "partitions": "3-1"}]}})
        made.delete(deleted)
        wait_until(split, until=partial(eq, right))
        settle(made, wait_until, "a", "b")
        wait_until(lambda: "restored tasks that another client had changed" in made.log())


def test_a_killed_driver_is_replaced_and_a_restarted_container_goes_on(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    with flow_under_load(api_server, namespace, east, west, wait_until) as made:
        epochs = made.epochs()
        on_a = {task for task, driver in made.running().items() if driver == "a"}
        made.drivers["a"].end(signal.SIGKILL)
        made.drivers["a"].start()  # the same pod, a new incarnation
        wait_until(
            lambda: {n for n, e in made.epochs().items() if e > epochs[n]},
            until=lambda claimed: claimed == on_a,
        )
        settle(made, wait_until, "a", "b")

        epochs = wait_until(made.epochs)
        made.drivers["a"].end(signal.SIGKILL)
        for unit in wait_until(made.units):
            if unit["spec"]["driverName"] == "a":
                lost = unit["status"]["driverIncarnation"]
                made.assign(unit["metadata"]["name"], "b", lost=lost)
        looks = itertools.count(1)
        wait_until(
            lambda: (next(looks), {n for n, e in made.epochs().items() if e > epochs[n]}),
            until=lambda seen: on_a <= seen[1],
        )
        # A holder that is not known to be lost has 10 s: more than 60 looks, one each 0.1 s. Time
        # that the machine pauses is not counted.
        assert next(looks) < 60
        settle(made, wait_until, "b")


@pytest.mark.long
def test_a_frozen_driver_stops_what_was_given_away_when_it_thaws(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    with flow_under_load(api_server, namespace, east, west, wait_until) as made:
        made.drivers["a"].process.send_signal(signal.SIGSTOP)
        given = [unit for unit in made.units() if unit["spec"]["driverName"] == "a"]
        for unit in given:
            lost = unit["status"]["driverIncarnation"]
            made.assign(unit["metadata"]["name"], "b", lost=lost)
        settle(made, wait_until, "b")
        epochs = wait_until(made.epochs)
        made.drivers["a"].process.send_signal(signal.SIGCONT)
        wait_until(lambda: made.drivers["a"].ready)
        wait_until(
            lambda: reported_lost(made.drivers["a"]),
            until={unit["metadata"]["name"] for unit in given}.issubset,
        )
        assert wait_until(made.epochs) == epochs
        assert set(wait_until(made.running).values()) == {"b"}


def test_a_driver_without_rights_says_which(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    flow = manifest(unique("powerless"), east, west, "any")
    api_server.kubectl("-n", namespace, "create", "serviceaccount", "powerless")
    with scene(api_server, namespace, flow) as made:
        driver = made.start_driver("a", api_server.kubeconfig_of(namespace, "powerless"))
        wait_until(
            lambda: driver.probe("/readyz"),
            until=lambda answer: (
                answer[0] == 503
                and (
                    "driver a may not list replicationflows.headrace.dev in namespace "
                    f"{namespace}: give that right to system:serviceaccount:{namespace}:powerless"
                )
                in answer[1]
            ),
        )
        wait_until(lambda: driver.probe("/healthz")[0] == 200)
        assert driver.end() == 0


@pytest.mark.long
def test_an_api_server_that_is_away_stops_no_data(
    own_api_server: OwnApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    with flow_under_load(own_api_server, namespace, east, west, wait_until) as made:
        topic, epochs = f"east.{made.name}", made.epochs()
        for fault in (own_api_server.kill, own_api_server.freeze):
            fault()
            wait_until(lambda: not any(d.ready for d in made.drivers.values()))
            wait_until(lambda: all(d.probe("/healthz")[0] == 200 for d in made.drivers.values()))
            there = sum(map(len, read(spec(west), topic).values()))
            wait_until(
                lambda: sum(map(len, read(spec(west), topic).values())),
                until=lambda now, there=there: now > there + 1_000,
            )
            if fault == own_api_server.freeze:
                own_api_server.thaw()
            else:
                own_api_server.start()
            wait_until(lambda: all(d.ready for d in made.drivers.values()))
        after = wait_until(made.epochs)
        assert after == epochs, "nobody was lost, nothing was claimed anew"
        task, other = min(epochs), "b"
        made.assign(task, other)
        wait_until(lambda: made.running().get(task) == other)


def test_an_owner_that_is_cut_off_and_given_up_stops(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    url = urlsplit(api_server.url)
    assert url.hostname
    assert url.port
    with (
        Proxy(url.hostname, url.port) as proxy,
        flow_under_load(api_server, namespace, east, west, wait_until) as made,
    ):
        own_way = made.kubeconfig.with_name(f"{made.name}-proxy.conf")
        own_way.write_text(
            made.kubeconfig.read_text().replace(api_server.url, f"https://127.0.0.1:{proxy.port}")
        )
        made.start_driver("c", own_way)
        wait_until(lambda: made.drivers["c"].ready)
        task = min(wait_until(made.running))
        made.assign(task, "c")
        wait_until(lambda: made.running().get(task) == "c")

        proxy.cut()
        lost = made.unit(task)["status"]["driverIncarnation"]
        made.assign(task, "a", lost=lost)
        wait_until(lambda: made.running().get(task) == "a")
        wait_until(made.drivers["c"].log.read_text, until=lambda log: "not ours any more" in log)
        proxy.mend()
        wait_until(lambda: made.drivers["c"].ready)
        assert wait_until(lambda: made.running().get(task)) == "a"


async def apply(server: ApiServer, object: Object) -> None:
    client = await connect_by_file("an old connector", str(server.kubeconfig))
    try:
        await client.apply(object, manager=CONNECTOR_MANAGER)
    finally:
        await client.close()


def test_a_stale_connector_and_two_flows_on_one_topic(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    with flow_under_load(api_server, namespace, east, west, wait_until) as made:
        connector = f"{made.name}-source-connector-0"
        epoch = made.unit(connector)["status"]["epoch"]
        assert {u["spec"]["connectorEpoch"] for u in made.units("SourceTask")} == {epoch}
        holder = made.unit(connector)["status"]["driverName"]
        made.assign(connector, "b" if holder == "a" else "a")
        # Its successor changes nothing, and writes its epoch into every task in time.
        wait_until(
            lambda: {u["spec"]["connectorEpoch"] for u in made.units("SourceTask")},
            until=lambda epochs: epochs == {epoch + 1},
        )
        wait_until(made.running, until=lambda on: len(on) == PARTITIONS)

        flow = ReplicationFlow.model_validate(
            manifest(made.name, east, west, "any") | {"metadata": {"name": made.name, "uid": "any"}}
        )
        task = TaskBuilder(flow, TaskType.SOURCE_TASK, epoch).build(0, [])
        task["metadata"] |= {"namespace": namespace, "ownerReferences": []}
        with pytest.raises(
            ObjectInvalid, match=r"connectorEpoch: .* higher epoch wrote this split"
        ):
            asyncio.run(apply(api_server, task))

        # A user raises the epoch of a task: the next connector says so, and recovers by itself.
        victim = min(made.running())
        made.patch(victim, {"spec": {"connectorEpoch": 9_000_000_000}})
        made.assign(connector, holder)
        wait_until(
            lambda: made.unit(connector)["status"],
            until=lambda status: (
                f"task {victim} has connectorEpoch 9000000000"
                in status.get("lastError", {}).get("message", "")
                and status["phase"] == "Failed"
            ),
        )
        made.delete(victim)
        wait_until(lambda: made.unit(connector)["status"]["phase"], until=partial(eq, "Running"))
        wait_until(made.running, until=lambda on: victim not in on or len(on) == PARTITIONS)
        settle(made, wait_until, "a", "b")

        again = manifest(unique("again"), east, west, made.name, heartbeats={"enabled": False})
        with scene(api_server, namespace, again) as second:
            second.start_driver("d")
            second.assign(f"{second.name}-source-connector-0", "d")
            wait_until(
                lambda: second.unit(f"{second.name}-source-connector-0").get("status", {}),
                until=lambda status: (
                    f"flows {made.name} and {second.name} both write topic east.{made.name}"
                    in str(status.get("conditions"))
                ),
            )


@contextmanager
def in_process(made: Scene) -> Iterator[Worker]:
    """Run a driver's Worker in this very process, for all units of the flow."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    client = asyncio.run_coroutine_threadsafe(
        connect_by_file("driver me", str(made.kubeconfig)), loop
    ).result(WITHIN_S)
    listed = client.list(FLOW, made.namespace, fields=f"metadata.name={made.name}")
    (found,) = asyncio.run_coroutine_threadsafe(listed, loop).result(WITHIN_S)
    flow = parse(ReplicationFlow, found)
    worker = Worker(flow, KubernetesHerder(client, loop, flow), DriverIdentity("me", "1"))
    try:
        yield worker
    finally:
        worker.stop(10)
        asyncio.run_coroutine_threadsafe(client.close(), loop).result(WITHIN_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def one_failure(id: TaskId) -> Iterator[None]:
    """Let the running instance of a source task of this process fail."""
    process, failed = SourceTask.process, list[SourceTask]()

    def failing(task: SourceTask) -> int:
        if task.id == id and not failed:
            failed.append(task)
            raise Fatal("injected")
        return process(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceTask, "process", failing)
        yield


def test_a_failed_task_is_restarted_while_the_api_server_is_away(
    own_api_server: OwnApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
) -> None:
    name = unique("away")
    topic = make_topic(spec(east), name, 1)
    flow = manifest(name, east, west, topic, heartbeats={"enabled": False})
    with (
        scene(own_api_server, namespace, flow) as made,
        Load(spec(east), topic, 1, per_second=200),
        in_process(made) as worker,
    ):

        def owners() -> dict[str, str]:
            made.spread("me")
            worker.update([parse(ReplicationTask, unit) for unit in made.units()])
            return made.running()

        id = TaskId(name, TaskType.SOURCE_TASK, 0)  # heartbeats of other tests may make a second
        wait_until(owners, until=lambda on: id.name in on)
        epoch = made.unit(id.name)["status"]["epoch"]
        own_api_server.freeze()
        with one_failure(id):
            wait_until(
                lambda: [
                    (unit.restarts, unit.status.phase) for unit in worker.figures() if unit.id == id
                ],
                until=partial(eq, [(1, TaskPhase.RUNNING)]),
            )
        there = count(spec(west), f"east.{topic}")
        wait_until(lambda: count(spec(west), f"east.{topic}"), until=lambda now: now > there + 200)
        own_api_server.thaw()
        wait_until(
            lambda: made.unit(id.name)["status"],
            until=lambda status: (
                (status["restarts"], status["phase"], status["epoch"]) == (1, "Running", epoch)
            ),
        )
