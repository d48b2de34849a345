"""Process in which an assignor of a plug-in runs.

It receives a state over a connection, and sends a reply. After an answer it receives the outcome,
and sends ``ready``. The process ends when the connection closes.

The module does not import the herder, which would take most of a second.
"""

import sys
from importlib.metadata import EntryPoint
from multiprocessing.connection import Connection
from typing import Literal

from headrace.assign import (
    DriverAssignment,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
    TaskId,
)

Reply = (
    tuple[Literal["ready"]]
    | tuple[Literal["lags wanted"]]
    | tuple[Literal["answered"], TaskAssignment]
    | tuple[Literal["cannot decide", "failed"], str]
)
"""Reply to the parent process.

It is a tuple, because the parent could not unpickle a class that this script defines. The text of a
failure continues a sentence that starts with the assignor's name.
"""


def main() -> None:
    """Run with the arguments ``ENTRY FD``.

    ``ENTRY`` is the assignor's class as ``package.module:Name``, and ``FD`` the file descriptor of
    the connection.
    """
    entry, fd = sys.argv[1:]
    serve(entry, Connection(int(fd)))


def serve(entry: str, line: Connection) -> None:
    """Respond to requests until the other end closes the connection."""
    assignor: TaskAssignor | None = None
    failure = ""
    try:
        assignor = EntryPoint("", entry, "").load()()
    except Exception as error:  # noqa: BLE001 - every error of a plug-in is reported
        failure = _raised(error)
    line.send(("ready",))
    while True:
        try:
            state = line.recv()
        except (EOFError, OSError):
            return
        if assignor is None:
            line.send(("failed", failure))
            continue
        try:
            answer = assignor.assign(state)
            line.send(("answered", _plain(answer)))
            assignor.on_assignment_computed(answer, state, line.recv())
            line.send(("ready",))
        except TaskAssignmentError as error:
            line.send(("cannot decide", str(error)))
        except Exception as error:  # noqa: BLE001 - every error of a plug-in is reported
            line.send(("failed", _raised(error)))


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {error}"


def _plain(answer: TaskAssignment) -> TaskAssignment:
    """Convert an answer to headrace's types, so that the parent need not import the plug-in."""
    if not isinstance(answer, TaskAssignment):
        raise TypeError(f"assign() must return a TaskAssignment, got {type(answer).__name__}")
    return TaskAssignment(
        {
            str(name): DriverAssignment(_ids(given.active), _ids(given.standby))
            for name, given in answer.drivers.items()
        },
        _ids(answer.waiting),
        None if answer.follow_up_ms is None else int(answer.follow_up_ms),
        bool(answer.balanced),
    )


def _ids(tasks: frozenset[TaskId]) -> frozenset[TaskId]:
    return frozenset(TaskId(*task) for task in tasks)


if __name__ == "__main__":
    main()
