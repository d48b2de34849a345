"""Units that a driver receives, without requests to an API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from headrace.driver.pod import DriverUnits
from headrace.k8s import Client, Kind, Object, Objects


class Units:
    """API server that lists assigned units before owned ones."""

    def __init__(self) -> None:
        self.owned_listed = asyncio.Event()

    async def list_versioned(self, *_: Any, fields: str, **__: Any) -> tuple[Objects, str]:
        if fields.startswith("spec."):
            return [{"metadata": {"name": "orders-0", "resourceVersion": "1"}}], "1"
        await self.owned_listed.wait()
        return [], "1"

    async def watch(self, kind: Kind, *_: Any, **__: Any) -> AsyncIterator[tuple[str, Object]]:
        yield "CONNECTED", {}
        await asyncio.Event().wait()


def test_an_empty_list_that_comes_last_is_reported_too() -> None:
    async def scene() -> None:
        server, changed = Units(), asyncio.Event()
        units = DriverUnits(cast("Client", server), "shop", "a", changed.set)
        running = asyncio.create_task(units.run())
        async with asyncio.timeout(60):
            await changed.wait()
            assert not units.synced  # so that the driver does nothing yet
            changed.clear()
            server.owned_listed.set()
            await changed.wait()
        assert units.synced
        running.cancel()

    asyncio.run(scene())
