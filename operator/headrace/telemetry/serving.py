"""HTTP server for probes and metrics."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from headrace.errors import InvalidSpec

Check = Callable[[], Sequence[str]]
"""Function that returns problems as sentences, or nothing if there are none."""
Page = tuple[str, Callable[[], str]]
"""Content type of a page, and a function that returns its text."""
_Answer = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def serve(
    host: str | None,
    port: int,
    registry: CollectorRegistry,
    *,
    live: Check,
    ready: Check,
    pages: Mapping[str, Page] = MappingProxyType({}),
    option: str = "--port",
) -> AsyncIterator[int]:
    """Serve probes and metrics, and yield the port.

    ``/healthz`` and ``/readyz`` return 200 if there are no problems, otherwise 503 and a list of
    the problems. The event loop creates these responses, so any response proves that the loop is
    not blocked. ``/metrics`` returns the metrics of ``registry`` in the requested format. A thread
    collects the metrics.

    Args:
        host: Address to listen on, or None for all addresses.
        port: Port to listen on, or 0 for any free port. If IPv4 and IPv6 have different ports, the
            port of IPv4 is yielded.
        registry: Metrics to serve.
        live: Returns the problems for ``/healthz``.
        ready: Returns the problems for ``/readyz``.
        pages: Other pages, by path.
        option: Option to name in error messages.

    Raises:
        InvalidSpec: The address is not available.
    """
    app = web.Application()
    app.router.add_get("/healthz", _health(live))
    app.router.add_get("/readyz", _health(ready))
    app.router.add_get("/metrics", _metrics(registry))
    for path, page in pages.items():
        app.router.add_get(path, _page(page))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        why = os.strerror(error.errno) if error.errno else str(error)
        raise InvalidSpec(
            f"cannot serve health on {host or ''}:{port} ({why}): choose another {option}"
        ) from error
    try:
        yield int(min(runner.addresses, key=len)[1])
    finally:
        await runner.cleanup()


def _health(check: Check) -> _Answer:
    async def answer(_: web.Request) -> web.Response:
        problems = check()
        text = "".join(f"{sentence}\n" for sentence in problems) or "ok\n"
        return web.Response(text=text, status=503 if problems else 200)

    return answer


def _page(page: Page) -> _Answer:
    content_type, text = page

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text(), content_type=content_type)

    return answer


def _metrics(registry: CollectorRegistry) -> _Answer:
    async def answer(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # With a thousand tasks this takes some tenths of a second, which must not delay Leases.
        text = await asyncio.to_thread(encode, registry)
        return web.Response(body=text, headers={"Content-Type": content_type})

    return answer
