"""The control socket of a running flow: one request, one answer, each a JSON line."""

import asyncio
import fcntl
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.errors import (
    HeadraceError,
    InvalidSpec,
    NotRunning,
    Retriable,
    Unreachable,
    from_exception,
)
from headrace.logs import get_logger

log = get_logger(__name__)

Handler = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

_MAX_PATH_BYTES = 107  # sun_path, less its closing zero
_LINE_LIMIT = 16 << 20
_TIMEOUT_S = 10.0


def socket_folder() -> Path:
    """``$XDG_RUNTIME_DIR/headrace``, else a folder of the user's own in the temporary directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "headrace"
    return Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"


def socket_path(flow: str) -> Path:
    """The socket of a flow; ``InvalidSpec`` when the path is longer than a socket's may be."""
    path = socket_folder() / f"{flow}.sock"
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise InvalidSpec(
            f"{path} is longer than the {_MAX_PATH_BYTES} bytes that a socket's path may have: "
            "shorten metadata.name, or set XDG_RUNTIME_DIR to a shorter folder"
        )
    return path


def running_flows() -> list[str]:
    """Names of the flows that a ``headrace run`` of this user serves now."""
    return sorted(path.stem for path in socket_folder().glob("*.sock") if _answers(path))


def request(
    flow: str, command: str, timeout_s: float = _TIMEOUT_S, **arguments: Any
) -> dict[str, Any]:
    """Send a request to a running flow and return its answer.

    Raises:
        NotRunning: No flow of this name runs here.
        Unreachable: The run did not answer.
        InvalidSpec: The run refused the request.
        Retriable: The run could not do it now.
    """
    path = socket_path(flow)
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(timeout_s)
        try:
            line.connect(os.fspath(path))
        except OSError:
            raise NotRunning(
                f"flow {flow} is not running here (no answer at {path}): start it with "
                f"`headrace run FILE`, as the same user; running now: "
                f"{', '.join(running_flows()) or 'none'}"
            ) from None
        try:
            line.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            with line.makefile("rb") as lines:
                answer = json.loads(lines.readline() or b"{}")
        except (OSError, json.JSONDecodeError) as error:
            raise Unreachable(f"flow {flow} did not answer {command} at {path}: {error}") from error
    if "error" in answer:
        raise Retriable(answer["error"]) if answer.get("later") else InvalidSpec(answer["error"])
    if "answer" not in answer:
        raise Unreachable(f"flow {flow} ended before it answered {command}")
    result: dict[str, Any] = answer["answer"]
    return result


@asynccontextmanager
async def serve(flow: str, handle: Handler) -> AsyncIterator[None]:
    """Answer on the flow's socket while the block runs; ``InvalidSpec`` when another run does."""
    path = socket_path(flow)
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise InvalidSpec(f"{folder} belongs to another user: set XDG_RUNTIME_DIR to one of yours")
    folder.chmod(0o700)
    # The lock goes with its process, even by -9; a socket file would stay.
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
                if line := await reader.readline():  # else it is ``_answers``, which asks nothing
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
    """Every line is answered, or its client would wait in vain."""
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


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(1)
        try:
            line.connect(os.fspath(path))
        except OSError:
            return False
    return True
