"""Liveness over HTTP: the event loop turns, so this answers."""

from aiohttp import web

from headrace.errors import InvalidSpec


async def serve_health(host: str | None, port: int) -> web.AppRunner:
    """Answer ``/healthz`` and ``/readyz`` until ``cleanup`` of what is returned. Host None: all.

    A replica that waits to lead is as well as one that leads. One that hangs answers nothing.
    """

    async def well(request: web.Request) -> web.Response:
        del request
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/healthz", well), web.get("/readyz", well)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise InvalidSpec(f"port {port} cannot be listened on ({error}): use --port") from error
    return runner
