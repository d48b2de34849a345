"""Renewal of a Lease, without an API server."""

import asyncio
from typing import Any, cast

from headrace.k8s import Client, LeaseKeeper


class SlowServer:
    """API server of a large fleet that needs more than a third of the duration for a renewal."""

    async def apply(self, *_: Any, **__: Any) -> None:
        await asyncio.sleep(0.6)


def test_an_overloaded_api_server_is_given_the_time_that_it_needs() -> None:
    async def main() -> None:
        client = cast(Client, SlowServer())
        keeper = LeaseKeeper(client, "shop", "a", "a/1", duration_s=1, manager="d", labels={})
        running = asyncio.create_task(keeper.run())
        async with asyncio.timeout(60):
            while not keeper.held:
                await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(main())
