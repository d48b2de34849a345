"""The operator's view of a Pod."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.controller.drivers import DriverPod, driver_pod

METADATA: dict[str, Any] = {
    "name": "a",
    "labels": {
        "headrace.dev/template": "t",
        "pod-template-hash": "5d4f",
        "topology.kubernetes.io/zone": "north",
    },
}


def test_a_pod_as_it_is() -> None:
    pod = driver_pod({"metadata": METADATA, "status": {"phase": "Running"}})
    assert pod == DriverPod("a", "t", "5d4f", rack="north", not_ready="it is not ready")
    assert driver_pod({"metadata": METADATA | {"deletionTimestamp": "now"}}).terminating
    assert driver_pod({"metadata": METADATA, "status": {"phase": "Failed"}}).ended


def test_since_when_its_containers_run() -> None:
    states = [{"running": {"startedAt": f"2026-11-21T12:00:0{second}Z"}} for second in (3, 7)]
    status = {"containerStatuses": [{"state": state} for state in (*states, {"waiting": {}})]}
    pod = driver_pod({"metadata": METADATA, "status": status})
    assert pod.running_since == datetime(2026, 11, 21, 12, 0, 7, tzinfo=UTC)


def test_a_container_whose_start_is_not_known_ends_no_operator() -> None:
    """Kubernetes' API writes a zero time as null."""
    states = [{"running": {"startedAt": None}}, {"running": {}}]
    status = {"phase": "Running", "containerStatuses": [{"state": state} for state in states]}
    assert driver_pod({"metadata": METADATA, "status": status}).running_since is None


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({}, ""),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}
                ]
            },
            "cannot be scheduled: 0/3 nodes fit",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                        "lastState": {"terminated": {"exitCode": 2}},
                    }
                ]
            },
            "CrashLoopBackOff: back-off; it ended with exit code 2",
        ),
        (
            {
                "initContainerStatuses": [
                    {"name": "mesh", "state": {"waiting": {"reason": "ErrImagePull"}}}
                ]
            },
            "container mesh: ErrImagePull: see its log",
        ),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], problem: str) -> None:
    assert driver_pod({"metadata": METADATA, "status": status}).problem == problem


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ([{"type": "Ready", "status": "True"}], ""),
        ([{"type": "Ready", "status": "False", "message": "unready: [mesh]"}], "unready: [mesh]"),
        ([], "it is not ready"),
    ],
)
def test_why_a_pod_is_not_ready(conditions: list[dict[str, str]], why: str) -> None:
    pod = {"metadata": METADATA, "status": {"conditions": conditions}}
    assert driver_pod(pod).not_ready == why
