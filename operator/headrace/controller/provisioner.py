"""Makes what flows need, beside their reconciles: an admission webhook may take 30 s to fail, and
the units of a lost driver must not wait for that."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.api import Readiness, Reason, ReplicationFlow
from headrace.controller.blocked import blocked_by
from headrace.controller.queue import SOON_S
from headrace.controller.targets import FlowName, flow_name
from headrace.errors import HeadraceError

_PATIENCE_S = 2.0
"""Within it an API server that is well has answered, unless a webhook holds it up."""
_REPORTED_FROM = 3
"""Failures in a row: one or two are a leader election, or a webhook that is rolled out."""
_VERIFY_EVERY_S = 300.0


@dataclass(frozen=True)
class Provided:
    """What is known of what a flow needs."""

    readiness: Readiness | None = None
    """What the flow's status has to say of it; None when all is there, or will soon be."""
    error: HeadraceError | None = None
    """Of the last attempt, once: the queue repeats the reconcile."""


class Provisioner:
    """Runs one attempt a flow at a time. For one event loop."""

    def __init__(
        self,
        make: Callable[[ReplicationFlow], Awaitable[None]],
        verify: Callable[[str, str], Awaitable[None]],
        enqueue: Callable[[FlowName, float], None],
    ) -> None:
        """``make`` makes what a flow needs, unless it is there; ``verify`` notices what is gone;
        ``enqueue`` gets a flow whose attempt took longer than its reconcile waited."""
        self._make, self._verify, self._enqueue = make, verify, enqueue
        self._attempts: dict[FlowName, asyncio.Task[None]] = {}
        self._readiness: dict[FlowName, Readiness] = {}
        self._failures: dict[FlowName, int] = {}
        self._verified_s: dict[FlowName, float] = {}

    async def provide(self, flow: ReplicationFlow) -> Provided:
        """Make what the flow needs; waits for the API server for a moment only."""
        name = flow_name(flow)
        attempt = self._attempts.get(name)
        if attempt is not None and attempt.done():
            provided = self._collect(name, attempt)
            if provided.error is not None:
                return provided
            attempt = None  # the flow may have changed meanwhile
        if attempt is None:
            attempt = self._attempts[name] = asyncio.create_task(self._attempt(flow))
            await asyncio.wait([attempt], timeout=_PATIENCE_S)
            if attempt.done():
                return self._collect(name, attempt)
            attempt.add_done_callback(lambda _: self._enqueue(name, SOON_S))
        return Provided(self._readiness.get(name))

    def forget(self, name: FlowName) -> None:
        """A flow is gone."""
        if (attempt := self._attempts.pop(name, None)) is not None:
            attempt.cancel()
        self._readiness.pop(name, None)
        self._failures.pop(name, None)
        self._verified_s.pop(name, None)

    def close(self) -> None:
        """End all attempts."""
        for attempt in self._attempts.values():
            attempt.cancel()

    async def _attempt(self, flow: ReplicationFlow) -> None:
        name, now_s = flow_name(flow), time.monotonic()
        if now_s - self._verified_s.setdefault(name, now_s) > _VERIFY_EVERY_S:
            await self._verify(*name)
            self._verified_s[name] = now_s
        await self._make(flow)

    def _collect(self, name: FlowName, attempt: asyncio.Task[None]) -> Provided:
        del self._attempts[name]
        try:
            attempt.result()
        except HeadraceError as error:
            if (blocked := blocked_by(error)) is not None:
                self._readiness[name] = blocked
                return Provided(blocked)
            self._failures[name] = self._failures.get(name, 0) + 1
            if self._failures[name] >= _REPORTED_FROM:
                message = f"{error}; it is tried again, and units are assigned all the same"
                self._readiness[name] = Readiness.reconciling(Reason.NOT_APPLIED, message)
            return Provided(self._readiness.get(name), error)
        self._readiness.pop(name, None)
        self._failures.pop(name, None)
        return Provided()
