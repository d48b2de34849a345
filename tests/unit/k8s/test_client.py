"""Waits of the client: webhooks delay writes, and a watch without events ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from support.fake_api_server import Answer, serving

from headrace.k8s import DEPLOYMENT, LEASE, Client, Object, Unavailable, client


def of(kind: str, api_version: str) -> Object:
    metadata = {"name": "a", "namespace": "shop"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


@asynccontextmanager
async def holding(until: asyncio.Event) -> AsyncIterator[Client]:
    """Yield a client of an API server whose webhooks delay every write."""

    async def write(request: web.Request) -> web.Response:
        await until.wait()
        return web.json_response(await request.json())

    async with asking(write) as found:
        yield found


@asynccontextmanager
async def asking(answer: Answer) -> AsyncIterator[Client]:
    """Yield a client of an API server with this answer."""
    async with serving(answer) as url:
        found = Client(ApiClient(Configuration(host=url)), "the operator")
        try:
            yield found
        finally:
            await found.close()


def test_a_write_waits_for_webhooks_but_a_lease_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 1.0)

    async def test() -> None:
        answer = asyncio.Event()
        async with holding(answer) as api:
            api.write_timeout_s = 60.0
            applied = asyncio.create_task(api.apply(of("Deployment", "apps/v1"), manager="m"))
            with pytest.raises(Unavailable, match="did not answer in time"):
                await api.replace(of(LEASE.name, LEASE.api_version))
            with pytest.raises(Unavailable, match="did not answer in time"):
                await api.get(DEPLOYMENT, "shop", "a")
            answer.set()
            assert (await applied)["kind"] == "Deployment"

    asyncio.run(test())


def test_a_watch_of_a_kind_without_events_ends_and_is_no_error() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response

    async def test() -> list[tuple[str, Object]]:
        async with asking(silent) as api:
            api.idle_timeout_s = 1.0
            return [event async for event in api.watch(DEPLOYMENT, "shop", "1")]

    assert asyncio.run(test()) == [("CONNECTED", {})]
