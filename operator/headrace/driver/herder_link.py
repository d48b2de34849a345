"""Connection between the herder and a driver process: JSON lines over a socket pair.

If the socket closes, the herder has ended.
"""

import itertools
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from headrace.api import (
    ReplicationTask,
    ReplicationTaskStatus,
    TaskType,
    Work,
    dump,
    dump_work,
)
from headrace.connect import TargetTaken, TaskConflict
from headrace.errors import Fatal, HeadraceError, Retriable

Event = dict[str, Any]

_ANSWER_TIMEOUT_S = 5.0


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message as one line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def answer_error(error: HeadraceError) -> dict[str, Any]:
    """Return the answer to a call that raised an error."""
    answer: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, TargetTaken):
        answer["topics"] = sorted(error.topics)
    if isinstance(error, TaskConflict) and error.current is not None:
        answer["current"] = dump(error.current)
    return answer


def _raise_error(answer: Mapping[str, Any]) -> None:
    message = answer["message"]
    match answer["error"]:
        case "TaskConflict":
            current = answer.get("current")
            raise TaskConflict(message, current and ReplicationTask.model_validate(current))
        case "TargetTaken":
            raise TargetTaken(message, answer["topics"])
        case _:
            raise Fatal(message)


class HerderLink:
    """The driver's end of the connection to the herder. Thread-safe.

    The driver's Workers use this object as their ``Herder``.
    """

    def __init__(
        self, line: socket.socket, on_event: Callable[[Event], None], on_closed: Callable[[], None]
    ) -> None:
        """Create the link. ``on_event`` and ``on_closed`` are called on the reading thread."""
        self._line = line
        self._on_event = on_event
        self._on_closed = on_closed
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Event]] = {}
        self._sending = threading.Lock()
        threading.Thread(target=self._read, name="herder-link", daemon=True).start()

    def claim(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self._status_write("claim", task, status)

    def report(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self._status_write("report", task, status)

    def release(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        return self._status_write("release", task, status)

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        answer = self._call("list-tasks", connector=dump(connector), type=type)
        return [ReplicationTask.model_validate(task) for task in answer["tasks"]]

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[Work]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None:
        self._call(
            "put-tasks",
            connector=dump(connector),
            type=type,
            tasks={index: [dump_work(one) for one in work] for index, work in tasks.items()},
            targetTopics=target_topics,
        )

    def beat(self) -> None:
        """Send a heartbeat of this driver."""
        self._send({"call": "beat"})

    def send_samples(self, request: int, samples: Sequence[Any]) -> None:
        """Send the current samples in response to the event ``samples``."""
        self._send({"call": "samples", "request": request, "samples": samples})

    def _status_write(
        self, verb: str, task: ReplicationTask, status: ReplicationTaskStatus
    ) -> ReplicationTask:
        answer = self._call(verb, task=dump(task), status=dump(status))
        return ReplicationTask.model_validate(answer["task"])

    def _call(self, verb: str, **arguments: Any) -> Event:
        call = next(self._ids)
        future = self._waiting[call] = Future()
        try:
            self._send({"id": call, "call": verb, **arguments})
            answer = future.result(_ANSWER_TIMEOUT_S)
        except FutureTimeout:
            raise Retriable(f"the herder did not answer within {_ANSWER_TIMEOUT_S:.0f} s") from None
        finally:
            del self._waiting[call]
        if "error" in answer:
            _raise_error(answer)
        return answer

    def _send(self, message: Event) -> None:
        try:
            with self._sending:
                self._line.sendall(encode(message))
        except OSError as error:
            raise Retriable(f"the line to the herder is closed: {error}") from error

    def _read(self) -> None:
        with self._line.makefile("rb") as lines:
            try:
                for line in lines:
                    self._take(json.loads(line))
            except (OSError, json.JSONDecodeError):
                # A truncated or damaged line also means that the herder has ended.
                pass
        for waiting in list(self._waiting.values()):
            with suppress(InvalidStateError):
                waiting.set_exception(Retriable("the line to the herder is closed"))
        self._on_closed()

    def _take(self, message: Event) -> None:
        if "event" in message:
            self._on_event(message)
        elif (future := self._waiting.get(message["id"])) is not None:
            future.set_result(message)
