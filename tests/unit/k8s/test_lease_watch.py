"""Users of a LeaseWatch are informed of all changes, including changes inside the watch."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from headrace.k8s import Client, Kind, LeaseWatch, Object, Objects, Unavailable

DRIVER = ("shop", "a")


class Leases:
    """API server with one Lease that can become unreachable."""

    def __init__(self) -> None:
        self.events = asyncio.Queue[Object | None]()
        self.gone = False
        self.duration_s = 600
        self.answers_after_s = 0.0
        self.answered = 0

    async def list_versioned(self, *_: Any, **__: Any) -> tuple[Objects, str]:
        return await self.list(), "1"

    async def list(self, *_: Any, **__: Any) -> Objects:
        if self.gone:
            raise Unavailable("away")
        await asyncio.sleep(self.answers_after_s)
        self.answered += 1
        return [lease(0, self.duration_s)]

    async def watch(self, kind: Kind, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        if self.gone:
            raise Unavailable("away")
        yield "CONNECTED", {}
        while (object := await self.events.get()) is not None:
            yield "MODIFIED", object
        raise Unavailable("broken")


def lease(renewed: int, duration_s: int = 600) -> Object:
    return {
        "metadata": {"namespace": "shop", "name": "a", "resourceVersion": str(renewed)},
        "spec": {
            "holderIdentity": "a/1",
            "renewTime": str(renewed),
            "leaseDurationSeconds": duration_s,
        },
    }


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def test_who_is_no_longer_sure_to_live_is_told_when_the_watch_breaks() -> None:
    async def main() -> None:
        server, renewals = Leases(), list[bool]()
        watch = LeaseWatch(
            cast(Client, server), "", on_change=lambda: renewals.append(watch.renewed(DRIVER))
        )
        running = asyncio.create_task(watch.run())
        await watch.synced.wait()
        await server.events.put(lease(1))
        await until(lambda: renewals and renewals[-1])
        server.gone = True
        await server.events.put(None)
        await until(lambda: not renewals[-1])
        assert not watch.expired
        before = len(renewals)
        server.gone = False
        await server.events.put(lease(2))
        await until(lambda: renewals[-1])
        assert len(renewals) == before + 1, "told once, however long it saw nothing"
        running.cancel()

    asyncio.run(main())


def test_nobody_is_lost_by_an_answer_that_came_late() -> None:
    """A renewal during the API server's stall may be missing from the answer."""

    async def main() -> None:
        server = Leases()
        server.duration_s = 1
        watch = LeaseWatch(cast(Client, server), "")
        watch.expect({DRIVER: 6})
        running = asyncio.create_task(watch.run())
        await until(lambda: server.answered == 1)  # the watch begins with this list
        server.answers_after_s = 2.2
        await until(lambda: server.answered == 2)
        assert not watch.expired
        server.answers_after_s = 0
        await until(lambda: watch.expired == {DRIVER})
        running.cancel()

    asyncio.run(main())
