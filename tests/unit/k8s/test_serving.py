"""HTTP answers of a pod, and the metrics of its requests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import aiohttp
import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client import CollectorRegistry

from headrace import __version__
from headrace.errors import InvalidSpec
from headrace.k8s import Client, Conflict, RequestMetrics, Unavailable
from headrace.k8s.client import METRICS
from headrace.k8s.kinds import FLOW
from headrace.sandbox.processes import held_ports
from headrace.telemetry import make_registry
from headrace.telemetry.serving import serve

Get = Callable[..., Awaitable[tuple[int, str, str]]]


def served(
    registry: CollectorRegistry,
    test: Callable[[Get], Awaitable[None]],
    port: int,
    problems: Sequence[str] = (),
) -> None:
    async def main() -> None:
        async with (
            serve("127.0.0.1", port, registry, live=list, ready=lambda: problems),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        ):

            async def get(path: str, **headers: str) -> tuple[int, str, str]:
                async with session.get(path, headers=headers) as answer:
                    return answer.status, answer.headers["Content-Type"], await answer.text()

            await test(get)

    asyncio.run(main())


@pytest.fixture
def port() -> Iterator[int]:
    """Yield a port that no other process takes before the test listens."""
    with held_ports([None]) as (free,):
        yield free


def test_probes_name_the_problems(port: int) -> None:
    async def test(get: Get) -> None:
        assert (await get("/healthz"))[::2] == (200, "ok\n")
        assert (await get("/readyz"))[::2] == (503, "no flow yet\nno Lease\n")

    served(make_registry(), test, port, problems=("no flow yet", "no Lease"))


def test_metrics_are_in_the_text_format_with_version_and_process(port: int) -> None:
    async def test(get: Get) -> None:
        status, type, text = await get("/metrics")
        assert status == 200
        assert type.startswith("text/plain; version=")
        assert f'headrace_build_info{{version="{__version__}"}} 1.0\n' in text
        assert "\nprocess_resident_memory_bytes " in text

    served(make_registry(), test, port)


def test_metrics_come_in_the_format_that_is_asked_for(port: int) -> None:
    async def test(get: Get) -> None:
        asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
        _, type, text = await get("/metrics", **asked)
        assert type.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")

    served(make_registry(), test, port)


def test_an_address_that_is_taken_is_named(port: int) -> None:
    async def test(_: Get) -> None:
        with pytest.raises(
            InvalidSpec, match=rf"cannot serve health on 127\.0\.0\.1:{port} .*in use"
        ):
            async with serve("127.0.0.1", port, make_registry(), live=list, ready=list):
                pass

    served(make_registry(), test, port)


def test_requests_are_counted_by_what_became_of_them(port: int) -> None:
    """The API server here has one flow, which changes constantly."""
    registry = make_registry()

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PUT":
            return web.json_response({"message": "it changed"}, status=409)
        if request.path.endswith("/gone"):
            return web.json_response({"message": "there is none"}, status=404)
        return web.json_response({"kind": "ReplicationFlow"})

    async def main() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        client = Client(ApiClient(Configuration(host=f"http://127.0.0.1:{port}")), "the test")
        client.on_request = RequestMetrics(registry)
        flow = {
            "apiVersion": FLOW.api_version,
            "kind": FLOW.name,
            "metadata": {"namespace": "shop", "name": "orders"},
        }
        try:
            assert await client.get(FLOW, "shop", "orders") == {"kind": "ReplicationFlow"}
            assert await client.get(FLOW, "shop", "gone") is None
            with pytest.raises(Conflict):
                await client.replace(flow)
            await runner.cleanup()
            with pytest.raises(Unavailable):
                await client.get(FLOW, "shop", "orders")
            with pytest.raises(Unavailable):
                await anext(client.watch(FLOW, "shop", ""))
        finally:
            await client.close()

    asyncio.run(main())

    def counted(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"kind": "ReplicationFlow", **labels})

    outcomes = {
        (verb, outcome): counted("headrace_api_requests_total", verb=verb, outcome=outcome)
        for verb, outcome in (
            ("get", "Success"),
            ("get", "NotFound"),
            ("get", "Unavailable"),
            ("update", "Conflict"),
            ("watch", "Unavailable"),
        )
    }
    assert outcomes == dict.fromkeys(outcomes, 1)
    assert counted("headrace_api_request_duration_seconds_count", verb="get") == 3
    described = {metric.name.removesuffix("_total"): metric.help for metric in METRICS}
    served_now = {family.name: family.documentation for family in registry.collect()}
    assert described.items() <= served_now.items()
