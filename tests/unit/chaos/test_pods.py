"""Faults of a flow in pods, on a scripted API server."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.api import ChaosAction, ChaosStep, FlowState
from headrace.chaos.pods import PodInjector, build_container, freeze_s
from headrace.errors import GaveUp, InvalidSpec
from headrace.k8s import Unavailable

Json = dict[str, Any]
PROBE = {"periodSeconds": 5, "failureThreshold": 6}
RESTRICTED = {"runAsUser": 1007, "capabilities": {"drop": ["ALL"]}}


def pod(name: str, *, leaving: bool = False, ready: bool = True, **status: Any) -> Json:
    container: Json = {"name": "driver", "image": "headrace:9", "livenessProbe": PROBE}
    container["securityContext"] = RESTRICTED
    metadata = {"name": name, "namespace": "shop"}
    return {
        "metadata": metadata | ({"deletionTimestamp": "2026-11-21T12:00:00Z"} if leaving else {}),
        "spec": {"containers": [container], "shareProcessNamespace": True},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        | status,
    }


def unit(name: str, type: str, driver: str, epoch: int = 1) -> Json:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationTask",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"flowName": "orders", "type": type, "driverName": driver},
        "status": {"driverName": driver, "epoch": epoch, "phase": "Running"},
    }


class Api:
    """Flow of two drivers, of which ``b`` has most source tasks. Signals reach their pods."""

    who = "the chaos Job"

    def __init__(self) -> None:
        self.pods = {"a": pod("a"), "b": pod("b")}
        self.units = {
            "connector": unit("connector", "SourceConnector", "a"),
            "task-0": unit("task-0", "SourceTask", "a"),
            "task-1": unit("task-1", "SourceTask", "b", epoch=4),
            "task-2": unit("task-2", "SourceTask", "b"),
        }
        self.flow: Json = {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "ReplicationFlow",
            "metadata": {"name": "orders", "namespace": "shop", "generation": 3},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:1"},
                "target": {"alias": "west", "bootstrapServers": "w:1"},
                "topics": {"include": [".*"]},
                "drivers": {"replicas": 2},
            },
            "status": {"observedGeneration": 3, "readyReplicas": 2},
        }
        self.test: Json = {"metadata": {"name": "nightly", "annotations": {}}}
        self.patches: list[tuple[str, str, Json, str]] = []
        self.ends_with: Json = {"exitCode": 0}

    async def get(self, kind: Any, _: str, name: str) -> Json | None:
        there = {"ReplicationFlow": self.flow, "MirrorTest": self.test}
        return there[kind.name] if kind.name in there else self.pods.get(name)

    async def list(self, kind: Any, _: str, *, labels: str) -> list[Json]:
        assert "headrace.dev/flow=orders" in labels
        return list((self.pods if kind.name == "Pod" else self.units).values())

    async def delete(self, kind: Any, _: str, name: str) -> bool:
        assert kind.name == "Pod"
        del self.pods[name]
        return True

    async def patch(self, kind: Any, _: str, name: str, patch: Json, subresource: str = "") -> Json:
        self.patches.append((kind.name, name, patch, subresource))
        if kind.name == "Pod":
            (added,) = patch["spec"]["ephemeralContainers"]
            now = {"startedAt": datetime.now(UTC).isoformat()}
            state = (
                {"running": now}
                if "--freeze=18" in added["args"]
                else {"terminated": now | self.ends_with}
            )
            statuses = [{"name": added["name"], "state": state}]
            self.pods[name]["status"]["ephemeralContainerStatuses"] = statuses
        elif kind.name == "MirrorTest":
            self.test["metadata"] |= patch["metadata"]
        else:
            self.flow["metadata"]["generation"] += 1
            self.flow["spec"]["drivers"] |= patch["spec"].get("drivers", {})
        return self.flow

    def takes(self, name: str, driver: str) -> None:
        """Claim a unit for a driver."""
        claimed = self.units[name]
        claimed["spec"]["driverName"] = claimed["status"]["driverName"] = driver
        claimed["status"]["epoch"] += 1


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def flow(api: Api, runner: asyncio.Runner) -> PodInjector:
    client: Any = api
    return PodInjector(client, runner.run, "shop", flow="orders", test="nightly")


def step(action: ChaosAction, drivers: int | None = None) -> ChaosStep:
    return ChaosStep(action=action, at_percent=50, drivers=drivers)


def test_a_flow_that_is_paused_names_the_test(api: Api, flow: PodInjector) -> None:
    """A user who finds the flow paused after the Job was killed can resume it."""
    api.flow["spec"]["state"] = "Running"
    flow.set_state(FlowState.PAUSED)
    api.flow["spec"]["state"] = "Paused"
    flow.set_state(FlowState.RUNNING)
    annotations = [patch["metadata"]["annotations"] for _, _, patch, _ in api.patches]
    assert annotations == [{"headrace.dev/paused-by": "nightly"}, {"headrace.dev/paused-by": None}]
    assert [patch["spec"]["state"] for _, _, patch, _ in api.patches] == ["Paused", "Running"]


def test_the_driver_with_most_source_tasks_is_killed_from_a_container_beside_it(
    api: Api, flow: PodInjector
) -> None:
    injection = flow.inject(step(ChaosAction.KILL_DRIVER))
    assert (injection.driver, injection.units, injection.lasts_s) == ("b", ("task-1", "task-2"), 0)
    ((kind, name, patch, subresource),) = api.patches
    assert (kind, name, subresource) == ("Pod", "b", "ephemeralcontainers")
    (added,) = patch["spec"]["ephemeralContainers"]
    assert (added["command"], added["args"]) == (["headrace", "test", "signal"], ["--driver=b"])
    assert not injection.recovered()
    api.takes("task-1", "b")  # the same pod again: its container restarted
    assert not injection.recovered()
    api.takes("task-2", "b")
    assert injection.recovered()


def test_a_unit_that_is_gone_need_not_come_back(api: Api, flow: PodInjector) -> None:
    injection = flow.inject(step(ChaosAction.KILL_DRIVER))
    del api.units["task-2"]
    api.takes("task-1", "a")
    assert injection.recovered()


def test_a_driver_is_frozen_for_longer_than_its_lease_and_shorter_than_its_kubelet_waits(
    api: Api, flow: PodInjector
) -> None:
    injection = flow.inject(step(ChaosAction.FREEZE_DRIVER))
    assert injection.lasts_s == 18
    assert api.patches[0][2]["spec"]["ephemeralContainers"][0]["args"] == [
        "--driver=b",
        "--freeze=18",
    ]


def test_the_only_driver_is_not_frozen(api: Api, flow: PodInjector) -> None:
    api.pods["a"] = pod("a", leaving=True)
    with pytest.raises(
        InvalidSpec, match=r"no driver can take over the units of driver b .* 2 or more"
    ):
        flow.inject(step(ChaosAction.FREEZE_DRIVER))
    assert not api.patches


def test_nothing_is_broken_while_units_move(api: Api, runner: asyncio.Runner) -> None:
    client: Any = api
    flow = PodInjector(
        client, runner.run, "shop", flow="orders", test="nightly", stable_timeout_s=0.1
    )
    api.units["task-0"]["spec"]["driverName"] = "b"
    with pytest.raises(
        GaveUp, match="flow orders was not stable for 0 s: units do not run, or move"
    ):
        flow.inject(step(ChaosAction.KILL_DRIVER))
    assert not api.patches


def test_a_request_that_got_no_answer_is_made_again(
    api: Api, flow: PodInjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse, patch = iter([Unavailable("it does not answer")]), api.patch

    async def patch_at_the_second_try(*arguments: Any, **options: Any) -> Json:
        for error in refuse:
            raise error
        return await patch(*arguments, **options)

    monkeypatch.setattr(api, "patch", patch_at_the_second_try)
    flow.inject(step(ChaosAction.SCALE_DRIVERS, drivers=3))
    assert api.flow["spec"]["drivers"]["replicas"] == 3


def test_one_operator_is_killed_though_an_answer_was_lost(
    api: Api, flow: PodInjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = api.patch

    async def lose_the_answer(*arguments: Any, **options: Any) -> Json:
        await patch(*arguments, **options)
        api.test["metadata"]["annotations"]["headrace.dev/kill-operator"] = "headrace-operator-7f"
        raise Unavailable("it did not answer in time")

    monkeypatch.setattr(api, "patch", lose_the_answer)
    injection = flow.inject(step(ChaosAction.KILL_OPERATOR))
    assert len(api.patches) == 1
    api.test["metadata"]["annotations"]["headrace.dev/kill-operator"] += ", then x2"
    assert injection.recovered()


def test_a_lease_that_is_too_long_to_be_outlived_is_refused() -> None:
    assert freeze_s(24, pod("a")) == 27
    with pytest.raises(InvalidSpec, match=r"lower spec.drivers.leaseSeconds of the flow to 24"):
        freeze_s(25, pod("a"))


def test_a_signal_that_did_not_come_through_says_why(api: Api, flow: PodInjector) -> None:
    api.ends_with = {"exitCode": 3, "message": "headrace: no process here runs it"}
    with pytest.raises(InvalidSpec, match="no process here runs it"):
        flow.inject(step(ChaosAction.KILL_DRIVER))


def test_a_pod_of_an_older_operator_gets_no_signal(api: Api, flow: PodInjector) -> None:
    del api.pods["b"]["spec"]["shareProcessNamespace"]
    with pytest.raises(InvalidSpec, match="pod b does not share its processes"):
        flow.inject(step(ChaosAction.KILL_DRIVER))


def test_the_container_has_the_drivers_user_and_restrictions_and_a_name_of_its_own() -> None:
    again = pod("a")
    again["spec"]["ephemeralContainers"] = [{"name": "chaos-0"}]
    made = build_container(again, [])
    assert (made["name"], made["image"]) == ("chaos-1", "headrace:9")
    assert made["securityContext"] == RESTRICTED


def test_a_pod_that_is_deleted_is_one_that_stays_otherwise(api: Api, flow: PodInjector) -> None:
    api.pods["b"] = pod("b", leaving=True)
    injection = flow.inject(step(ChaosAction.DELETE_DRIVER_POD))
    assert (injection.driver, injection.units) == ("a", ("connector", "task-0"))
    assert "a" not in api.pods
    for name in injection.units:
        api.takes(name, "b")
    assert injection.recovered()


def test_a_flow_without_source_tasks_cannot_be_broken(api: Api, flow: PodInjector) -> None:
    api.units = {}
    with pytest.raises(InvalidSpec, match="no driver holds a source task of flow orders"):
        flow.inject(step(ChaosAction.DELETE_DRIVER_POD))


def test_scaling_is_over_when_so_many_drivers_run_every_unit(api: Api, flow: PodInjector) -> None:
    injection = flow.inject(step(ChaosAction.SCALE_DRIVERS, drivers=3))
    assert api.flow["spec"]["drivers"]["replicas"] == 3
    assert not injection.recovered()
    api.pods["c"] = pod("c", ready=False)
    api.flow["status"] = {"observedGeneration": 4, "readyReplicas": 3}
    assert not injection.recovered()
    api.pods["c"] = pod("c")
    api.units["task-1"]["spec"]["driverName"] = "c"
    assert not injection.recovered(), "it is on its way"
    api.takes("task-1", "c")
    assert injection.recovered()
    api.pods["evicted"] = pod("evicted", phase="Failed")
    assert injection.recovered(), "what has ended is no driver"


def test_rolling_is_over_when_no_pod_of_before_is_left(api: Api, flow: PodInjector) -> None:
    injection = flow.inject(step(ChaosAction.ROLL_DRIVERS))
    annotations = api.flow["spec"]["drivers"]["podTemplate"]["metadata"]["annotations"]
    assert list(annotations) == ["kubectl.kubernetes.io/restartedAt"]
    api.flow["status"]["observedGeneration"] = 4
    assert not injection.recovered(), "the pods are those of before"
    api.pods = {"c": pod("c"), "d": pod("d")}
    for name in api.units:
        api.takes(name, "c")
    assert injection.recovered()


def test_the_operator_is_asked_to_die_and_the_next_one_says_that_it_leads(
    api: Api, flow: PodInjector
) -> None:
    injection = flow.inject(step(ChaosAction.KILL_OPERATOR))
    annotations = api.test["metadata"]["annotations"]
    assert annotations == {"headrace.dev/kill-operator": ""}
    annotations["headrace.dev/kill-operator"] = "headrace-operator-7f"
    assert not injection.recovered()
    annotations["headrace.dev/kill-operator"] += ", then headrace-operator-x2"
    assert injection.recovered()


def test_an_operator_that_was_asked_and_did_not_die_is_no_recovery(
    api: Api, flow: PodInjector
) -> None:
    injection = flow.inject(step(ChaosAction.KILL_OPERATOR))
    api.test["metadata"]["annotations"].clear()
    with pytest.raises(InvalidSpec, match="removed the request and did not end"):
        injection.recovered()
