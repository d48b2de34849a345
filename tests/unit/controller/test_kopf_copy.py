import asyncio
from typing import Any, cast

from headrace.controller.kopf_copy import KopfCopy
from headrace.k8s import FLOW, Client, Object, Objects


class _ListingClient:
    """API server that answers with the lists that a test gives, one after another."""

    def __init__(self) -> None:
        self.lists: asyncio.Queue[tuple[Objects, str]] = asyncio.Queue()

    async def list_versioned(self, *_: Any, **__: Any) -> tuple[Objects, str]:
        return await self.lists.get()


def _flow(name: str, version: int) -> Object:
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version)}}


async def _listed(copy: KopfCopy, client: _ListingClient, version: int, *objects: Object) -> None:
    """Answer with a list that is the first, or differs from the copy, and wait until it counts."""
    last = _flow("last", version)
    client.lists.put_nowait(([*objects, last], str(version)))
    async with asyncio.timeout(30):
        while copy.get("last", "ns") != last:
            await asyncio.sleep(0)


def _names(copy: KopfCopy) -> list[str]:
    return sorted(one["metadata"]["name"] for one in copy)


def test_events_and_lists_that_arrive_late_bring_no_deleted_flow_back() -> None:
    async def test() -> None:
        client = _ListingClient()
        copy = KopfCopy(
            cast(Client, client), FLOW, "ns", labels="", on_change=lambda _: None, list_every_s=0
        )
        running = asyncio.create_task(copy.run())
        try:
            await _listed(copy, client, 10, _flow("orders", 3), _flow("payments", 4))
            await _listed(copy, client, 20, _flow("payments", 4))
            copy.observe(_flow("orders", 15), deleted=False)
            assert _names(copy) == ["last", "payments"]
            copy.observe(_flow("payments", 30), deleted=True)
            await _listed(copy, client, 25, _flow("payments", 22))
            assert _names(copy) == ["last"]
            copy.observe(_flow("orders", 40), deleted=False)
            copy.observe(_flow("payments", 41), deleted=False)
            assert _names(copy) == ["last", "orders", "payments"]
        finally:
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(test())
