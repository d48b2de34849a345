"""Opens assignors by name, and checks their answers. Plug-ins run in separate processes."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from multiprocessing.connection import Connection
from typing import Protocol

from headrace.assign import (
    SHIPPED,
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
    Violation,
)
from headrace.errors import InvalidSpec
from headrace.host import spawn
from headrace.logs import get_logger
from headrace.placement import assignor_process
from headrace.placement.assignor_process import Reply


@dataclass(frozen=True)
class Decision:
    """Assignment to put in force. Without a valid answer of the assignor, it is the current one."""

    assignment: TaskAssignment
    error: AssignmentError = AssignmentError.NONE
    reason: str = ""
    """Problem for the flow's status, or empty."""


class Decider(Protocol):
    """Calls an assignor and checks its answer."""

    def decide(self, state: ApplicationState) -> Decision:
        """Call the assignor, and check its answer.

        The outcome of the check is reported to the assignor.
        """
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


def keep(state: ApplicationState, name: str, what: str) -> Decision:
    """Return the current assignment. Units without an existing driver wait."""
    reason = f"assignor {name} {what}; the assignment in force stays"
    return Decision(AssignmentUtils.identity(state), reason=reason)


def refuse(state: ApplicationState, name: str, violation: Violation) -> Decision:
    """Return the assignment in force, because the assignor's answer violates a rule."""
    kept = keep(state, name, f"gave an assignment that cannot be: {violation.message}")
    return replace(kept, error=violation.error)


def retry(state: ApplicationState, name: str, why: str) -> Decision:
    """Return the assignment in force and request another decision at once.

    This corresponds to KIP-924's TaskAssignmentException.
    """
    kept = keep(state, name, f"cannot decide now: {why}")
    return replace(kept, assignment=replace(kept.assignment, follow_up_ms=state.now_ms))


log = get_logger(__name__)


class InProcess:
    """Built-in assignor, called directly.

    Any error other than ``TaskAssignmentError`` is a defect of headrace. Units continue to run.
    """

    def __init__(self, name: str, assignor: TaskAssignor) -> None:
        self._name = name
        self._assignor = assignor

    def decide(self, state: ApplicationState) -> Decision:
        try:
            answer = self._assignor.assign(state)
        except TaskAssignmentError as why:
            return retry(state, self._name, str(why))
        except Exception as fault:
            log.exception("internal error, please report it", assignor=self._name)
            return keep(state, self._name, f"raised {type(fault).__name__}: {fault}")
        violation = AssignmentUtils.find_violation(state, answer)
        error = violation.error if violation else AssignmentError.NONE
        self._assignor.on_assignment_computed(answer, state, error)
        return refuse(state, self._name, violation) if violation else Decision(answer)

    def close(self) -> None:
        """Do nothing."""


_START_S = 30.0
"""Time limit for the start of Python and the plug-in's imports, in seconds."""


class PlugIn:
    """Assignor of a plug-in, in a separate process.

    The process is kept as long as it responds in time, so the assignor may remember earlier rounds.
    ``decide`` blocks for up to ``limit_s``, and the first time also until the process has started.
    Do not call it on an event loop. If the process fails in any way, ``decide`` ends it and returns
    the assignment in force. ``entry`` is the class, as ``package.module:Name``. The plug-in's
    output goes to standard error.
    """

    def __init__(self, name: str, entry: str, limit_s: float) -> None:
        self._name = name
        self._entry = entry
        self._limit_s = limit_s
        self._child: _Child | None = None
        self._talking = threading.Lock()
        self._closed = False

    def decide(self, state: ApplicationState) -> Decision:
        with self._talking:
            return self._decide(state)

    def close(self) -> None:
        """End the process. A call of ``decide`` in another thread then gets no answer."""
        self._closed = True
        if (child := self._child) is not None:
            child.process.kill()
        with self._talking:
            self._end(grace_s=0)

    def _decide(self, state: ApplicationState) -> Decision:
        try:
            return self._converse(self._child or self._start(), state)
        except _FailedError as error:
            self._end(grace_s=0)
            return keep(state, self._name, str(error))
        except (EOFError, OSError):  # OSError if the process ended while it sent a reply
            code = self._end(grace_s=1)
            return keep(state, self._name, f"ended its process (exit code {code})")
        except Exception as error:  # noqa: BLE001 - every error of a plug-in is reported
            self._end(grace_s=0)
            found = f"{type(error).__name__}: {error}"
            return keep(state, self._name, f"sent a reply that cannot be used ({found})")
        except BaseException:
            self._end(grace_s=0)  # the conversation cannot be resumed
            raise

    def _start(self) -> "_Child":
        try:
            self._child = child = _spawn(self._entry)
        except OSError as error:
            raise _FailedError(f"could not be started: {error}") from error
        if self._closed:
            child.process.kill()
        child.receive(_Limit("start", _START_S, time.monotonic()))
        return child

    def _converse(self, child: "_Child", state: ApplicationState) -> Decision:
        limit = _Limit("answer", self._limit_s, time.monotonic())
        child.line.send(state)
        match child.receive(limit):
            case ("answered", assignment):
                violation = AssignmentUtils.find_violation(state, assignment)
                child.line.send(violation.error if violation else AssignmentError.NONE)
                last = child.receive(limit)
                if violation:
                    return refuse(state, self._name, violation)
                reason = f"assignor {self._name} {last[1]}" if last[0] == "failed" else ""
                return Decision(assignment, reason=reason)
            case ("cannot decide", why):
                return retry(state, self._name, why)
            case ("failed", how):
                return keep(state, self._name, how)
        raise EOFError("replies out of turn")

    def _end(self, grace_s: float) -> int | None:
        """End the process if there is one, and return its exit code."""
        child, self._child = self._child, None
        return child.end(grace_s) if child else None


class _FailedError(Exception):
    """The process could not be started, or did not respond in time.

    The assignor's name is put before the message.
    """


@dataclass(frozen=True)
class _Limit:
    what: str
    seconds: float
    since: float


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    line: Connection

    def receive(self, limit: _Limit) -> Reply:
        """Return the next reply.

        Raise ``_FailedError`` after the limit, and ``EOFError`` if the process ended.
        """
        if not self.line.poll(max(0.0, limit.since + limit.seconds - time.monotonic())):
            raise _FailedError(f"did not {limit.what} within {limit.seconds:g} s")
        reply: Reply = self.line.recv()
        return reply

    def end(self, grace_s: float) -> int:
        """Wait ``grace_s`` for the end of the process, then kill it. Return the exit code."""
        self.line.close()
        try:
            return self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _spawn(entry: str) -> _Child:
    ours, theirs = socket.socketpair()
    with theirs:
        fd = theirs.fileno()
        child = spawn(
            [sys.executable, "-P", assignor_process.__file__, entry, str(fd)],
            stdout=sys.__stderr__.fileno() if sys.__stderr__ else None,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[fd],
        )
    return _Child(child, Connection(ours.detach()))


GROUP = "headrace.assignors"


def known_assignors() -> Sequence[str]:
    """Return the names of all assignors that can be chosen here, sorted."""
    return sorted({*SHIPPED, *entry_points(group=GROUP).names})


def open_assignor(name: str, limit_s: float = 5.0) -> Decider:
    """Return the assignor of that name. Built-in assignors take precedence over plug-ins.

    A plug-in has ``limit_s`` to respond. Raise ``InvalidSpec`` if there is no such assignor.
    """
    if name in SHIPPED:
        return InProcess(name, SHIPPED[name]())
    return PlugIn(name, _find(name).value, limit_s)


def check_assignor(name: str) -> None:
    """Raise ``InvalidSpec``, with the available names, if there is no assignor of that name."""
    if name not in SHIPPED:
        _find(name)


def _find(name: str) -> EntryPoint:
    for entry in entry_points(group=GROUP, name=name):
        return entry
    raise InvalidSpec(
        f"spec.tasks.assignor: there is no assignor {name}; known here are "
        f"{', '.join(known_assignors())}. A plug-in is a Python package, installed beside "
        f"headrace, that names its assignor as an entry point of {GROUP}"
    )
