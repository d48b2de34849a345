"""Liveness and readiness of a driver pod, over HTTP."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from headrace.errors import InvalidSpec

Check = Callable[[], Sequence[str]]
"""What is amiss, in sentences; nothing when all is well."""


@asynccontextmanager
async def serve_health(host: str, port: int, live: Check, ready: Check) -> AsyncIterator[None]:
    """``/healthz`` and ``/readyz``: 200 when nothing is amiss, else 503 and what is.

    That an answer comes at all says that the event loop runs. Raises ``InvalidSpec`` when the
    address is not to be had.
    """
    app = web.Application()
    app.router.add_get("/healthz", _answer(live))
    app.router.add_get("/readyz", _answer(ready))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        why = os.strerror(error.errno) if error.errno else str(error)
        raise InvalidSpec(
            f"cannot serve health on {host}:{port} ({why}): choose another --port or --pod-ip"
        ) from error
    try:
        yield
    finally:
        await runner.cleanup()


def _answer(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        amiss = check()
        text = "".join(f"{sentence}\n" for sentence in amiss) or "ok\n"
        return web.Response(text=text, status=503 if amiss else 200)

    return answer
