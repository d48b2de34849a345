"""Children of a flow, built from its spec and the chart's defaults."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from headrace.api import (
    CONNECTOR_MANAGER,
    Readiness,
    Reason,
    ReplicationFlow,
    TaskType,
    wants_watch,
)
from headrace.controller.children import Children, ContestedChild, DeploymentState
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.drivers import DriverPod, FlowDrivers, drivers_of, is_ambiguous
from headrace.controller.events import blocked_by
from headrace.controller.queue import SOON_S
from headrace.controller.resources import (
    CONNECTORS,
    DriverDefaults,
    FixedRole,
    build_children,
    build_deployment,
    build_unit,
    template_hash,
    with_defaults,
)
from headrace.controller.resources.deployment import TEMPLATE
from headrace.controller.target_topics import FlowName, flow_name
from headrace.errors import HeadraceError
from headrace.k8s import DEPLOYMENT, NETWORK_POLICY
from headrace.logs import get_logger

_REPORTED_FROM = 3
"""Number of consecutive failures from which a failure is reported.

A leader election or a webhook roll-out causes one or two.
"""
_VERIFY_EVERY_S = 300.0


@dataclass(frozen=True)
class Provided:
    """Result of providing a flow's children."""

    readiness: Readiness | None = None
    """Readiness to report in the flow's status, or None if all children exist or will soon."""
    error: HeadraceError | None = None
    """Error of the last attempt. It is returned once, and the queue repeats the reconcile."""


class Provisioner:
    """Creates the children of flows, with one attempt at a time for each flow.

    Use it from one event loop.
    """

    def __init__(
        self,
        make: Callable[[ReplicationFlow], Awaitable[None]],
        verify: Callable[[str, str], Awaitable[None]],
        enqueue: Callable[[FlowName, float], None],
        answer_timeout_s: float,
    ) -> None:
        """Create a provisioner for all flows.

        Args:
            make: Creates the missing children of a flow.
            verify: Detects deleted children.
            enqueue: Receives a flow whose attempt took longer than its reconcile waited.
            answer_timeout_s: Time that a reconcile waits for the API server, in seconds.
        """
        self._make, self._verify, self._enqueue = make, verify, enqueue
        self._answer_timeout_s = answer_timeout_s
        self._attempts: dict[FlowName, asyncio.Task[None]] = {}
        self._readiness: dict[FlowName, Readiness] = {}
        self._failures: dict[FlowName, int] = {}
        self._verified_s: dict[FlowName, float] = {}

    async def provide(self, flow: ReplicationFlow) -> Provided:
        """Create the missing children of a flow.

        Wait for the API server for at most ``answer_timeout_s``.
        """
        name = flow_name(flow)
        attempt = self._attempts.get(name)
        if attempt is not None and attempt.done():
            provided = self._collect(name, attempt)
            if provided.error is not None:
                return provided
            attempt = None  # the flow may have changed
        if attempt is None:
            attempt = self._attempts[name] = asyncio.create_task(self._attempt(flow))
            await asyncio.wait([attempt], timeout=self._answer_timeout_s)
            if attempt.done():
                return self._collect(name, attempt)
            attempt.add_done_callback(lambda _: self._enqueue(name, SOON_S))
        return Provided(self._readiness.get(name))

    def forget(self, name: FlowName) -> None:
        """Forget a deleted flow."""
        if (attempt := self._attempts.pop(name, None)) is not None:
            attempt.cancel()
        self._readiness.pop(name, None)
        self._failures.pop(name, None)
        self._verified_s.pop(name, None)

    def close(self) -> None:
        """Cancel all attempts."""
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
                message = f"{error}; the operator tries again, and continues to assign units"
                self._readiness[name] = Readiness.reconciling(Reason.NOT_APPLIED, message)
            return Provided(self._readiness.get(name), error)
        self._readiness.pop(name, None)
        self._failures.pop(name, None)
        return Provided()


# Order of roll-outs. An upgrade of the operator replaces the drivers of every flow. A roll-out
# moves each unit once, and needs pods of two templates at the same time. Flows are ordered by
# ``spec.drivers.rolloutPriority``, highest first, then by namespace and name.

_ROLLOUT_DEADLINE_S = 600.0
"""Time after which a roll-out no longer counts towards the limit, in seconds.

It equals the progressDeadlineSeconds of a Deployment. The old pods of such a roll-out stay until
new pods are ready.
"""


@dataclass
class _Outdated:
    """A flow with pods of an older template."""

    priority: int
    since_s: float | None = None
    """Start of the flow's roll-out on the monotonic clock, or None while the roll-out waits."""


class Rollouts:
    """Limits the number of roll-outs in progress. Use it from one event loop.

    Nothing is stored: a flow that has pods of its newest template and of another one is rolling
    out, whatever started the roll-out.
    """

    def __init__(
        self,
        limit: int,
        everyone: Callable[[], Iterable[FlowName]],
        wake: Callable[[FlowName], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the limit.

        Args:
            limit: Maximum number of flows that roll out at the same time; 0 for all.
            everyone: Returns the existing flows.
            wake: Receives the flows that may check again after a roll-out has ended.
            clock: Monotonic clock.
        """
        self._limit, self._everyone, self._wake, self._clock = limit, everyone, wake, clock
        self._outdated: dict[FlowName, _Outdated] = {}
        self._observed: set[FlowName] = set()

    def can_start(self, flow: ReplicationFlow, pods: Iterable[DriverPod], newest: str) -> bool:
        """Return True if the flow's drivers may have the template ``newest`` now.

        No roll-out begins before each flow was observed once, because the flow with the highest
        priority may be observed last.
        """
        if not self._limit:
            return True
        name = flow_name(flow)
        self._observed.add(name)
        staying = [pod.template for pod in pods if not pod.terminating and not pod.ended]
        if all(template == newest for template in staying):
            self._end(name)
            return True
        own = self._outdated.setdefault(name, _Outdated(0))
        own.priority = flow.spec.drivers.rollout_priority
        if own.since_s is None and (newest in staying or self._is_next(name)):
            own.since_s = self._clock()
        return own.since_s is not None

    def observed(self, name: FlowName) -> None:
        """Record that a flow was reconciled, with any outcome."""
        self._observed.add(name)

    def forget(self, name: FlowName) -> None:
        """Forget a deleted flow."""
        self._observed.discard(name)
        self._end(name)

    def _end(self, name: FlowName) -> None:
        if (ended := self._outdated.pop(name, None)) is not None and ended.since_s is not None:
            for waiting in self._waiting:
                self._wake(waiting)

    @property
    def _waiting(self) -> list[FlowName]:
        """Flows that wait for their roll-out, in order."""
        waiting = [of for of, one in self._outdated.items() if one.since_s is None]
        return sorted(waiting, key=lambda of: (-self._outdated[of].priority, of))

    def _is_next(self, name: FlowName) -> bool:
        if not self._observed.issuperset(self._everyone()):
            return False
        began = [one.since_s for one in self._outdated.values() if one.since_s is not None]
        active = sum(self._clock() - since_s < _ROLLOUT_DEADLINE_S for since_s in began)
        return name in self._waiting[: max(self._limit - active, 0)]


log = get_logger(__name__)


@dataclass(frozen=True)
class FlowSettings:
    """Settings of the operator that concern flows."""

    driver_image: str
    network_policy: bool = False
    driver_defaults: DriverDefaults = field(default_factory=DriverDefaults)
    chaos: bool = False
    """True if mirror tests may break drivers."""
    driver_role: FixedRole | None = None
    """Role with the permissions of drivers, which the chart creates.

    If None, the operator writes these permissions into a role of each flow. The operator must then
    have these permissions itself.
    """
    answer_timeout_s: float = 2.0
    """Time that a reconcile waits for the API server to create a flow's children, in seconds.

    A healthy API server responds within it, unless a webhook delays the response.
    """


class FlowChildren:
    """Children of all flows. Use it from one event loop."""

    def __init__(
        self, cache: ClusterCache, children: Children, settings: FlowSettings, rollouts: Rollouts
    ) -> None:
        self._cache, self._children = cache, children
        self._settings, self._rollouts = settings, rollouts
        self._waiting: set[FlowName] = set()
        """Flows whose drivers must not be replaced yet."""

    async def apply(self, flow: ReplicationFlow) -> None:
        """Create or change the children that differ from the flow's spec."""
        settings, tasks = self._settings, self._cache.tasks(flow)
        for manifest in build_children(
            with_defaults(flow, settings.driver_defaults),
            settings.driver_image,
            network_policy=settings.network_policy,
            chaos=settings.chaos,
            driver_role=settings.driver_role,
            tasks=tasks,
        ):
            if manifest["kind"] == DEPLOYMENT.name and self.waits(flow):
                if (template := self._children.deployment(flow).template) is None:
                    continue  # the watch of the Deployment has not reported it yet
                manifest["spec"]["template"] = template
            await self._children.apply(flow, manifest)
        there = {task.metadata.name for task in tasks}
        watch = (TaskType.SOURCE_WATCH,) if wants_watch(flow) else ()
        for type in (*CONNECTORS, *watch):
            unit = build_unit(flow, type)
            if unit["metadata"]["name"] not in there:
                made = await self._children.create(flow, unit, CONNECTOR_MANAGER)
                self._cache.put_task(made)
        if not watch:
            for task in tasks:
                if task.spec.type is TaskType.SOURCE_WATCH:
                    await self._children.delete(task)
        if not settings.network_policy:
            await self._children.remove(flow, NETWORK_POLICY)

    async def drivers(self, flow: ReplicationFlow, *, paused: bool) -> FlowDrivers:
        """Return the existing drivers, after deciding whether they may be replaced.

        While the flow is ``paused``, they must not be replaced.
        """
        newest = self._newest_template(flow)
        self._take_turn(flow, newest, paused=paused)
        if self.waits(flow) and (template := self._children.deployment(flow).template):
            newest = template["metadata"]["labels"].get(TEMPLATE, newest)
        pods, replica_set = self._cache.pods(flow), ""
        if is_ambiguous(pods, newest):
            try:
                replica_set = await self._children.newest_replica_set(flow)
            except HeadraceError as error:  # an error must not delay units of a lost driver
                log.warning("takes all driver pods for the newest", why=str(error))
            pods = self._cache.pods(flow)  # read again after the request
        return drivers_of(pods, newest, self._cache.leases(flow_name(flow)), replica_set)

    def waits(self, flow: ReplicationFlow) -> bool:
        """Return True if the flow's drivers must not be replaced yet."""
        return flow_name(flow) in self._waiting

    def deployment(self, flow: ReplicationFlow) -> DeploymentState:
        """Return the state of a flow's Deployment."""
        return self._children.deployment(flow)

    def contested(self, flow: ReplicationFlow) -> tuple[ContestedChild, ...]:
        """Return a flow's children that other managers change again and again."""
        return tuple(self._children.contested(flow))

    def due_s(self, flow: ReplicationFlow) -> float:
        """Return the seconds until a child may be reverted, or until old changes are forgotten."""
        return self._children.due_s(flow)

    def observed(self, name: FlowName) -> None:
        """Record that a flow was reconciled, with any outcome."""
        self._rollouts.observed(name)

    def forget(self, name: FlowName) -> None:
        """Forget a deleted flow."""
        self._children.forget(*name)
        self._rollouts.forget(name)
        self._waiting.discard(name)

    def _newest_template(self, flow: ReplicationFlow) -> str:
        made, settings = with_defaults(flow, self._settings.driver_defaults), self._settings
        return template_hash(build_deployment(made, settings.driver_image, chaos=settings.chaos))

    def _take_turn(self, flow: ReplicationFlow, newest: str, *, paused: bool) -> None:
        name = flow_name(flow)
        if paused:
            self._rollouts.forget(name)  # a paused flow must not delay other flows
            self._rollouts.observed(name)
            self._waiting.add(name)
        elif self._rollouts.can_start(flow, self._cache.pods(flow), newest):
            self._waiting.discard(name)
        else:
            self._waiting.add(name)
