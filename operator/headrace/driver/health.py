"""Liveness and readiness of a driver pod, over HTTP."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from headrace.errors import InvalidSpec

Checks = Callable[[], Mapping[str, bool]]
"""What has to be so, in words, and whether it is."""


@asynccontextmanager
async def serve_health(host: str, port: int, live: Checks, ready: Checks) -> AsyncIterator[None]:
    """``/healthz`` and ``/readyz``: 200 when all of it is so, else 503 with a line for what is not.

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
        raise InvalidSpec(
            f"cannot serve health on {host}:{port} ({error.strerror}): choose another --port or "
            "--pod-ip"
        ) from error
    try:
        yield
    finally:
        await runner.cleanup()


def _answer(checks: Checks) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        failed = [what for what, so in checks().items() if not so]
        text = "".join(f"not so: {what}\n" for what in failed) or "ok\n"
        return web.Response(text=text, status=503 if failed else 200)

    return answer
