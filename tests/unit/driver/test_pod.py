"""Changes of its flow's object that a driver in a pod follows, without an API server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

from headrace.api import ReplicationFlow, Resets
from headrace.driver.pod import Pod, PodDriver
from headrace.k8s import Client, Object, Objects

FLOW: dict[str, Any] = {
    "apiVersion": "headrace.dev/v1beta1",
    "kind": "ReplicationFlow",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "u", "generation": 1},
    "spec": {
        "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
        "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
        "topics": {"include": ["orders"]},
    },
}


def test_an_annotation_counts_though_it_is_not_of_the_spec() -> None:
    pod = Pod("orders", "shop", "orders-0", None, "127.0.0.1", 0, None, 1.0)
    followed: list[ReplicationFlow] = []

    async def scene() -> None:
        driver = PodDriver(cast("Client", SimpleNamespace(on_request=None)), pod)
        found = {"orders": FLOW}
        parts = {
            "_flows": found,
            "_worker": SimpleNamespace(change_flow=followed.append),
            "_lease": SimpleNamespace(duration_s=0),
        }
        for name, part in parts.items():
            setattr(driver, name, part)
        async with asyncio.TaskGroup() as tasks:
            for annotations in ({}, {"other": "1"}, reset := {"headrace.dev/reset": ASKED}, reset):
                metadata = {**FLOW["metadata"], "annotations": annotations}
                found["orders"] = {**FLOW, "metadata": metadata}
                await driver._update_flow(tasks)

    asyncio.run(scene())
    assert [str(Resets.from_metadata(flow.metadata)) for flow in followed] == ["", ASKED]


def test_driver_follows_annotations_and_keeps_the_last_valid_spec_of_an_invalid_flow() -> None:
    pod = Pod("orders", "shop", "orders-0", None, "127.0.0.1", 0, None, 1.0)
    followed: list[ReplicationFlow] = []
    wrong = {**FLOW["spec"], "pausedPartitions": [{"topic": "orders", "partitions": "3-0"}]}
    stored = {"lastValid": {"generation": 1, "spec": {**FLOW["spec"], "state": "Paused"}}}

    async def scene() -> None:
        driver = PodDriver(cast("Client", SimpleNamespace(on_request=None)), pod)
        found = {"orders": FLOW}
        parts = {
            "_flows": found,
            "_worker": SimpleNamespace(change_flow=followed.append),
            "_lease": SimpleNamespace(duration_s=0),
        }
        for name, part in parts.items():
            setattr(driver, name, part)
        metadata = {**FLOW["metadata"], "generation": 2}
        async with asyncio.TaskGroup() as tasks:
            found["orders"] = {**FLOW, "metadata": metadata, "spec": wrong}
            await driver._update_flow(tasks)
            assert followed == [], "a driver that starts knows no valid spec yet"
            found["orders"] |= {"status": stored}
            await driver._update_flow(tasks)
            annotated = {**metadata, "annotations": {"headrace.dev/reset": ASKED}}
            found["orders"] = {**found["orders"], "metadata": annotated}
            await driver._update_flow(tasks)

    asyncio.run(scene())
    assert [flow.spec.state for flow in followed] == ["Paused", "Paused"]
    assert [str(Resets.from_metadata(flow.metadata)) for flow in followed] == ["", ASKED]


class EmptyNamespace:
    """API server without flows and units."""

    on_request = None

    async def list_versioned(self, *_: Any, **__: Any) -> tuple[Objects, str]:
        return [], "1"

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        yield "CONNECTED", {}
        await asyncio.Event().wait()


def test_driver_without_a_flow_ends_on_term() -> None:
    pod = Pod("orders", "shop", "orders-0", None, "127.0.0.1", 0, None, 1.0)

    async def scene() -> None:
        running = asyncio.create_task(PodDriver(cast("Client", EmptyNamespace()), pod).run())
        await asyncio.sleep(0)  # the first step of the driver installs its signal handlers
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await running

    asyncio.run(scene())


ASKED = "orders/3@2026-01-31T18:00:00Z"
