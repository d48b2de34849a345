"""Client of a flow's control socket. Requests and responses are lines of JSON.

Commands import only the client. With the server's imports (asyncio, logging), a command would take
twice as long to start.
"""

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from headrace.errors import InvalidSpec, NotRunning, Retriable, Unreachable

_MAX_PATH_BYTES = 107  # size of sun_path without its closing zero
_TIMEOUT_S = 10.0


def socket_folder() -> Path:
    """Return the folder of the control sockets.

    It is ``$XDG_RUNTIME_DIR/headrace``, or a folder of the user in the temporary directory.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "headrace"
    return Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"


def socket_path(flow: str) -> Path:
    """Return the path of a flow's socket. Raise ``InvalidSpec`` if it is too long for a socket."""
    path = socket_folder() / f"{flow}.sock"
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise InvalidSpec(
            f"{path} is longer than the {_MAX_PATH_BYTES} bytes that a socket's path may have: "
            "shorten metadata.name, or set XDG_RUNTIME_DIR to a shorter folder"
        )
    return path


def running_flows() -> list[str]:
    """Return the names of the flows of this user's ``headrace run`` processes."""
    return sorted(path.stem for path in socket_folder().glob("*.sock") if _answers(path))


def request(
    flow: str, command: str, timeout_s: float = _TIMEOUT_S, **arguments: Any
) -> dict[str, Any]:
    """Send a command to a running flow and return the response.

    Raises:
        NotRunning: No flow of this name runs on this machine.
        Unreachable: The run did not respond.
        InvalidSpec: The run rejected the command.
        Retriable: The run could not carry out the command now.
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


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(1)
        try:
            line.connect(os.fspath(path))
        except OSError:
            return False
    return True
