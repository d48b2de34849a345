"""An assignor that somebody else wrote, asked in a process that can be ended."""

import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from headrace.assign import ApplicationState, AssignmentError, AssignmentUtils
from headrace.host import spawn
from headrace.placement.assignors import process
from headrace.placement.assignors.decision import Decision, keep, refuse, retry
from headrace.placement.assignors.process import Reply

_START_S = 30.0
"""For Python and the plug-in's imports: they may be many, and the machine busy."""


class PlugIn:
    """Keeps its process as long as that answers in time: an assignor may remember earlier rounds.

    ``decide`` blocks for ``limit_s`` at worst (the first time, until the process has started, too):
    not for an event loop. ``entry`` is the class, as ``package.module:Name``; what it prints goes
    to standard error.
    """

    def __init__(self, name: str, entry: str, limit_s: float) -> None:
        self._name = name
        self._entry = entry
        self._limit_s = limit_s
        self._child: _Child | None = None
        self._talking = threading.Lock()
        self._closed = False

    def decide(self, state: ApplicationState) -> Decision:
        """See ``Decider``."""
        with self._talking:
            return self._decide(state)

    def close(self) -> None:
        """End the process; who is being asked on another thread has then not answered."""
        self._closed = True
        if (child := self._child) is not None:
            child.process.kill()
        with self._talking:
            self._end(grace_s=0)

    def _decide(self, state: ApplicationState) -> Decision:
        try:
            if self._child is None:
                self._child = _spawn(self._entry)
                if self._closed:
                    self._child.process.kill()
                self._child.receive(_Limit("start", _START_S, time.monotonic()))
            return self._converse(self._child, state)
        except _LateError as error:
            self._end(grace_s=0)
            return keep(state, self._name, str(error))
        except (EOFError, ConnectionError):
            code = self._end(grace_s=1)
            return keep(state, self._name, f"ended its process (exit code {code})")
        except BaseException:
            self._end(grace_s=0)  # Amid a conversation that nobody would go on with.
            raise

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
        """End the process, if there is one; its exit code."""
        child, self._child = self._child, None
        return child.end(grace_s) if child else None


class _LateError(Exception):
    """Ends a sentence that begins with the assignor's name."""


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
        """The next reply; raises ``_LateError`` past the limit, ``EOFError`` when it ended."""
        if not self.line.poll(max(0.0, limit.since + limit.seconds - time.monotonic())):
            raise _LateError(f"did not {limit.what} within {limit.seconds:g} s")
        reply: Reply = self.line.recv()
        return reply

    def end(self, grace_s: float) -> int:
        """Wait for the end, and make it."""
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
            [sys.executable, "-P", process.__file__, entry, str(fd)],
            stdout=sys.__stderr__.fileno() if sys.__stderr__ else None,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[fd],
        )
    return _Child(child, Connection(ours.detach()))
