"""The client: waits for webhooks, watches without events, and answers that are none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException
from support.fake_api_server import Answer, serving
from support.fake_kafka import FakeClock

from headrace.k8s import DEPLOYMENT, LEASE, Client, Object, Unavailable, client
from headrace.k8s.client import PodCredentials


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


def test_answer_that_a_proxy_cut_or_replaced_is_no_answer_of_the_api_server() -> None:
    async def test(status: int, body: bytes) -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(status=status, body=body)

        async with asking(answer) as api:
            with pytest.raises(Unavailable, match="could not get deployments"):
                await api.get(DEPLOYMENT, "shop", "a")
            with pytest.raises(Unavailable, match="could not list deployments"):
                await api.list(DEPLOYMENT, "shop")
            with pytest.raises(Unavailable, match="could not watch deployments"):
                [event async for event in api.watch(DEPLOYMENT, "shop", "1")]

    asyncio.run(test(200, b'{"type": \n'))
    asyncio.run(test(200, b"<html>Welcome</html>\n"))
    asyncio.run(test(200, b'{"type": "\xff"}\n'))
    asyncio.run(test(200, b"null\n"))
    asyncio.run(test(200, b'["ok"]\n'))
    asyncio.run(test(200, b'{"message": "Welcome"}\n'))
    asyncio.run(test(502, b"<html>\xff</html>"))


class ClockSetBack(FakeClock):
    """Clock whose Unix time is set back again and again."""

    def time(self) -> float:
        return 1_700_000_000 - self.now_s


@asynccontextmanager
async def asking_as_pod(files: list[str], clock: FakeClock) -> AsyncIterator[Client]:
    """Yield a client whose token files have these contents. The server returns each token."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"kind": "Deployment", "token": request.headers["Authorization"]})

    def load(settings: Configuration) -> None:
        if not (token := files.pop(0)):
            raise ConfigException("Token file exists but empty.")
        settings.api_key["BearerToken"] = token

    async with serving(answer) as url:
        settings = Configuration(host=url)
        PodCredentials(load, clock).refresh(settings)
        found = Client(ApiClient(settings), "the operator")
        try:
            yield found
        finally:
            await found.close()


def test_pod_reads_its_token_again_every_minute_though_the_clock_is_set_back() -> None:
    async def test() -> None:
        clock, files = ClockSetBack(), ["first", "", "second"]
        async with asking_as_pod(files, clock) as api:
            clock.advance(59)
            assert await api.get(DEPLOYMENT, "shop", "a") == {
                "kind": "Deployment",
                "token": "first",
            }
            clock.advance(1)
            outcomes: list[str] = []
            api.on_request = lambda verb, kind, outcome, took_s: outcomes.append(outcome)
            with pytest.raises(Unavailable, match="credentials cannot be read: Token file"):
                await api.get(DEPLOYMENT, "shop", "a")
            assert await api.get(DEPLOYMENT, "shop", "a") == {
                "kind": "Deployment",
                "token": "second",
            }
            assert outcomes == ["Unavailable", "Success"]

    asyncio.run(test())
