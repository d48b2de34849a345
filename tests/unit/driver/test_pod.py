"""Changes of its flow's object that a driver in a pod follows, without an API server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from structlog.testing import capture_logs

from headrace.api import ReplicationFlow, Resets
from headrace.driver.pod import Pod, PodDriver
from headrace.k8s import Client, Kind, Object, Objects
from headrace.k8s.kinds import FLOW as FLOW_KIND

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


ASKED = "orders/3@2026-01-31T18:00:00Z"
POD = Pod("orders", "shop", "orders-0", None, "127.0.0.1", 0, None, 1.0)


class Namespace:
    """API server with at most one flow and without units, which accepts renewals of Leases."""

    def __init__(self) -> None:
        self.on_request: object = None
        self.changes = asyncio.Queue[Object]()

    async def list_versioned(self, *_: Any, **__: Any) -> tuple[Objects, str]:
        return [], "1"

    async def watch(self, kind: Kind, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        yield "CONNECTED", {}
        while kind is FLOW_KIND:
            yield "MODIFIED", await self.changes.get()
        await asyncio.Event().wait()

    async def apply(self, *_: Any, **__: Any) -> None: ...

    async def delete(self, *_: Any, **__: Any) -> None: ...


class FollowingWorker:
    """Worker without units that records the flows that it follows."""

    alive = True

    def __init__(self) -> None:
        self.followed: list[ReplicationFlow] = []
        self.updates = 0

    def start(self, flow: ReplicationFlow, *_: object) -> Any:
        self.change_flow(flow)
        return self

    def change_flow(self, flow: ReplicationFlow) -> None:
        self.followed.append(flow)

    def update(self, _: object) -> None:
        """Count the call, which the driver makes after each change of its flow or units."""
        self.updates += 1

    def stop(self, _: float) -> bool:
        return True

    @property
    def resets(self) -> list[str]:
        return [str(Resets.from_metadata(flow.metadata)) for flow in self.followed]


class Driving:
    """Running driver, whose flow a test changes."""

    def __init__(self) -> None:
        self.worker, self._server, self._version = FollowingWorker(), Namespace(), 1
        driver = PodDriver(cast("Client", self._server), POD, self.worker.start)
        self._running = asyncio.create_task(driver.run())

    def put(self, flow: Object) -> None:
        """Let the watch report a change of the flow."""
        self._version += 1
        version = {"resourceVersion": str(self._version)}
        self._server.changes.put_nowait({**flow, "metadata": {**flow["metadata"], **version}})

    async def change(self, flow: Object) -> None:
        """Change the flow, and wait until the driver with its Worker has processed the change."""
        before = self.worker.updates
        self.put(flow)
        await self.until(lambda: self.worker.updates > before)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the condition is true. Raise the error of a driver that ended before."""
        async with asyncio.timeout(60):
            while not holds():
                if self._running.done():
                    await self._running
                    raise AssertionError("the driver ended without an error")
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Let the driver end on TERM, and raise its error."""
        if not self._running.done():
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await self._running


@asynccontextmanager
async def driving() -> AsyncIterator[Driving]:
    it = Driving()
    await asyncio.sleep(0)  # the first step of the driver installs its signal handlers
    try:
        yield it
    finally:
        await it.end()


def test_an_annotation_counts_though_it_is_not_of_the_spec() -> None:
    async def scene() -> None:
        async with driving() as it:
            for annotations in ({}, {"other": "1"}, reset := {"headrace.dev/reset": ASKED}, reset):
                metadata = {**FLOW["metadata"], "annotations": annotations}
                await it.change({**FLOW, "metadata": metadata})
            assert it.worker.resets == ["", ASKED]

    asyncio.run(scene())


def test_driver_follows_annotations_and_keeps_the_last_valid_spec_of_an_invalid_flow() -> None:
    wrong = {**FLOW["spec"], "pausedPartitions": [{"topic": "orders", "partitions": "3-0"}]}
    stored = {"lastValid": {"generation": 1, "spec": {**FLOW["spec"], "state": "Paused"}}}
    invalid = {**FLOW, "metadata": {**FLOW["metadata"], "generation": 2}, "spec": wrong}

    async def scene() -> None:
        async with driving() as it:
            with capture_logs() as logged:
                it.put(invalid)
                await it.until(lambda: "waits for a valid spec" in [one["event"] for one in logged])
            assert it.worker.followed == [], "a driver that starts knows no valid spec yet"
            await it.change(invalid | {"status": stored})
            annotated = {**invalid["metadata"], "annotations": {"headrace.dev/reset": ASKED}}
            await it.change({**invalid, "metadata": annotated, "status": stored})
            assert [flow.spec.state for flow in it.worker.followed] == ["Paused", "Paused"]
            assert it.worker.resets == ["", ASKED]

    asyncio.run(scene())


def test_driver_without_a_flow_ends_on_term() -> None:
    async def scene() -> None:
        running = asyncio.create_task(PodDriver(cast("Client", Namespace()), POD).run())
        await asyncio.sleep(0)  # the first step of the driver installs its signal handlers
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await running

    asyncio.run(scene())
