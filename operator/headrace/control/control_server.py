"""Server of a flow's control socket."""

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from headrace.control.control import socket_path
from headrace.errors import HeadraceError, InvalidSpec, from_exception
from headrace.logs import get_logger

log = get_logger(__name__)

Handler = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

_LINE_LIMIT = 16 << 20


@asynccontextmanager
async def serve(flow: str, handle: Handler) -> AsyncIterator[None]:
    """Serve requests at the flow's socket while the block runs.

    Raise ``InvalidSpec`` if another run serves this flow.
    """
    path = socket_path(flow)
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise InvalidSpec(f"{folder} belongs to another user: set XDG_RUNTIME_DIR to one of yours")
    folder.chmod(0o700)
    # The kernel releases the lock when the process ends, even with -9. A socket file would remain.
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidSpec(
                f"flow {flow} runs already (it answers at {path}): "
                f"see `headrace status {flow}`, stop that run first"
            ) from None
        path.unlink(missing_ok=True)

        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                if line := await reader.readline():  # empty if the client sent no request
                    writer.write(json.dumps(await _answered(handle, line)).encode() + b"\n")
                    await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(serve_one, path, limit=_LINE_LIMIT)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)


async def _answered(handle: Handler, line: bytes) -> dict[str, Any]:
    """Return the response to a request. Errors are returned as well, because the client waits."""
    try:
        asked = json.loads(line)
        return {"answer": await handle(asked.pop("command"), asked)}
    except InvalidSpec as error:
        return {"error": str(error)}
    except HeadraceError as error:
        return {"error": str(error), "later": True}
    except Exception as error:
        log.exception("could not answer", asked=line.decode(errors="replace")[:200])
        return {"error": str(from_exception(error)), "later": True}
