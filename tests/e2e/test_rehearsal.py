"""A fail-over that a mirror test rehearses, where next to nothing is allowed."""

from collections.abc import Callable
from typing import Any

import pytest
from cluster.real import Cluster
from e2e.flow import FlowInPods
from e2e.mirror_test import MirrorTestInPods
from e2e.restrictions import policies, quota
from e2e.stage import flow_between_brokers
from support.manifests import Document, mirror_test

Wait = Callable[..., Any]
GROUPS, MESSAGES, PER_SECOND = 4, 4_000, 400
LIMITED: Document = {"limits": {"cpu": "1"}}

pytestmark = pytest.mark.usefixtures("brokers", "release")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_fail_over_is_rehearsed_in_pods_and_undone(
    cluster: Cluster, namespace: str, wait_until: Wait
) -> None:
    name = f"rehearsed-{namespace}"
    copies = flow_between_brokers(
        f"{name}-.*", replicas=1, resources={"limits": {"cpu": "1", "memory": "512Mi"}}
    )
    copies["spec"] |= {
        "groups": {"include": ["headrace-rehearsal-.*"]},
        "heartbeats": {"enabled": False},
    }
    document = mirror_test(
        name,
        flowName="mirror",
        load={
            "topics": 1,
            "partitions": 4,
            "messages": MESSAGES,
            "messagesPerSecond": PER_SECOND,
            "producers": 1,
        },
        rehearsal={"groups": GROUPS},
        spark={"executors": 0, "driver": {"resources": {"requests": {"cpu": "100m"}, **LIMITED}}},
    )
    limits = quota(**{"limits.cpu": "4", "limits.memory": "5Gi", "pods": "5"})
    cluster.apply(limits, *policies(cluster), namespace=namespace)
    flow, test = (
        FlowInPods(cluster, namespace, "mirror"),
        MirrorTestInPods(cluster, namespace, name),
    )
    with cluster.enforcing_policies():
        cluster.apply(copies, document, namespace=namespace)
        wait_until(test.verdict, within_s=600)
        assert test.verdict() == "Passed", test.status()
        flow.kubectl("wait", "rflow/mirror", "--for=condition=Ready", "--timeout=300s")
    rehearsed = test.result()["rehearsal"]
    assert (rehearsed["error"], rehearsed["notUndone"]) == (None, None)
    groups = rehearsed["groups"]
    assert [(one["reread"], one["skipped"]) for one in groups] == [(0, 0)] * GROUPS
    assert groups[0]["committed"] < groups[-1]["committed"]
    assert test.status()["counts"]["missing"] == 0
