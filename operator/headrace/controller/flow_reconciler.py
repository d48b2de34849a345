"""Reconciler of ReplicationFlows."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.api import (
    PAUSE_ANNOTATION,
    Readiness,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    TaskType,
)
from headrace.controller.assignment import AssignmentChanges, assignment_changes
from headrace.controller.children import Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.drivers import FlowDrivers, stuck_rollout
from headrace.controller.events import blocked_by
from headrace.controller.flow_children import (
    FlowChildren,
    FlowSettings,
    Provided,
    Provisioner,
    Rollouts,
)
from headrace.controller.flow_writer import FlowWrites
from headrace.controller.loops import Loops
from headrace.controller.queue import SOON_S
from headrace.controller.resources.deployment import driver_selector
from headrace.controller.target_topics import FlowName, flow_name, taken_target
from headrace.errors import HeadraceError
from headrace.k8s import InForce, Object
from headrace.placement import Assigner, stopped_units, task_id
from headrace.status import FlowFacts, flow_status, status_without_units

_INCOMPLETE_S = 1.0
"""Retry interval while the cache is incomplete or behind, in seconds."""
_RETRY_S = 15.0
"""Retry interval while a user must change something that is not watched, in seconds.

For example, the user must grant a permission.
"""
_RESYNC_S = 600.0


@dataclass(frozen=True)
class _Outcome:
    """Result of one reconcile."""

    status: ReplicationFlowStatus | None
    """Status to write, or None if the flow's state is unknown and its status must not change."""
    again_s: float
    """Maximum time until the next reconcile, in seconds."""
    error: HeadraceError | None = None
    """Error of children that could not be created.

    All other work was done, and the reconcile is repeated.
    """


class FlowReconciler:
    """Reconciles ReplicationFlows. Use it from one event loop."""

    def __init__(
        self,
        cache: ClusterCache,
        children: Children,
        writes: FlowWrites,
        settings: FlowSettings,
        enqueue: Callable[[FlowName, float], None],
        *,
        rollouts: Rollouts,
    ) -> None:
        """Create a reconciler for the flows of a cache.

        ``enqueue`` receives a flow, and the seconds within which to reconcile it.
        """
        self._cache, self._writes, self._enqueue = cache, writes, enqueue
        self._owned = FlowChildren(cache, children, settings, rollouts)
        self._provisioner = Provisioner(
            self._owned.apply, children.verify, enqueue, settings.answer_timeout_s
        )
        self._loops = Loops(cache)
        self._assigners: dict[FlowName, Assigner] = {}

    async def reconcile(self, name: FlowName) -> float | None:
        """Reconcile a flow.

        Return the seconds until the next reconcile, or None if it was deleted.
        """
        self._cache.requeue_rivals(name)
        for rival in self._loops.concerned(name):
            self._enqueue(rival, SOON_S)
        object = self._cache.flow_object(name)
        if object is None or "deletionTimestamp" in object["metadata"]:
            self._forget(name)
            return None
        flow = None
        try:
            in_force = self._cache.in_force(name)
            flow = in_force.flow
            outcome = await self._outcome(in_force)
        except HeadraceError as error:
            self._owned.observed(name)
            if (blocked := blocked_by(error)) is None:
                raise
            outcome = _unobserved(object, flow, blocked)
        if outcome.status is None:
            return outcome.again_s
        known = await self._writes.status(object, flow, outcome.status)
        again_s = outcome.again_s if known else min(outcome.again_s, _RETRY_S)
        if outcome.error is not None:
            self._enqueue(name, again_s)  # or sooner, by the queue's retry
            raise outcome.error
        return again_s

    async def _outcome(self, in_force: InForce) -> _Outcome:
        self._check_watches()
        if not self._cache.is_complete:
            return _Outcome(None, _INCOMPLETE_S)
        return await self._make_and_assign(in_force)

    async def _make_and_assign(self, in_force: InForce) -> _Outcome:
        flow = in_force.flow
        paused = flow.metadata.annotations.get(PAUSE_ANNOTATION, "").lower() == "true"
        hands_off = paused or not in_force.is_complete
        drivers = await self._owned.drivers(flow, paused=hands_off)
        taken = taken_target(flow, self._cache.flows(), self._cache.written)
        loop = self._loops.refusal(flow)
        may_copy = not taken and not loop
        decided = await self._decide(flow, drivers, may_copy=may_copy, hands_off=hands_off)
        all_written = await self._writes.assign(decided.assignments)
        await self._writes.answer(self._cache.tasks(flow), decided.moves)
        provided = Provided() if hands_off else await self._provisioner.provide(flow)
        blocked = _invalid_spec(in_force) or provided.readiness or self._invalid_unit(flow)
        now, deployment = datetime.now(UTC), self._owned.deployment(flow)
        facts = FlowFacts(
            now,
            flow,
            self._cache.tasks(flow),
            alive=drivers.alive,
            placement_problem=decided.problem,
            is_lost=drivers.is_lost,
            blocked=blocked,
            taken=taken,
            loop=loop,
            pods=tuple(drivers.pods.values()),
            paused=paused,
            last_valid=in_force.last_valid,
            waits_for_rollout=self._owned.waits(flow) and not hands_off,
            refused_pods=deployment.refused_pods,
            stuck_rollout=stuck_rollout(
                drivers, now, refused=deployment.refused_pods, overdue=deployment.overdue
            ),
            contested=self._owned.contested(flow),
            selector=",".join(f"{k}={v}" for k, v in driver_selector(flow.metadata.name).items()),
        )
        # With 10,000 units this takes 0.1 s, and Leases must be renewed in the meantime.
        status = await asyncio.to_thread(flow_status, facts)
        waiting = any(not task.spec.driver_name for task in facts.tasks)
        if not all_written or (drivers.none_schedulable and waiting):
            again_s = _INCOMPLETE_S  # or sooner, if a watch reports the change
        elif blocked or drivers.silent or drivers.rolling or facts.waits_for_rollout:
            again_s = _RETRY_S
        else:
            again_s = _follow_up_s(decided)
        if not hands_off and blocked is None and provided.error is None:
            again_s = min(again_s, max(self._owned.due_s(flow), SOON_S))
        return _Outcome(status, again_s, provided.error)

    def close(self) -> None:
        """End the assignors' plug-ins and the requests in flight."""
        self._provisioner.close()
        for assigner in self._assigners.values():
            assigner.close()

    def _forget(self, name: FlowName) -> None:
        self._provisioner.forget(name)
        self._owned.forget(name)
        if (assigner := self._assigners.pop(name, None)) is not None:
            assigner.close()

    def _check_watches(self) -> None:
        """Raise the error of a watch if a user must fix its cause."""
        error = self._cache.watch_error
        if error is not None and blocked_by(error):
            raise error

    def _invalid_unit(self, flow: ReplicationFlow) -> Readiness | None:
        why = self._cache.invalid_unit(flow_name(flow))
        return Readiness.stalled(Reason.INVALID_SPEC, why) if why else None

    async def _decide(
        self, flow: ReplicationFlow, drivers: FlowDrivers, *, may_copy: bool, hands_off: bool
    ) -> AssignmentChanges:
        tasks = self._cache.tasks(flow)
        copying = (task for task in tasks if task.spec.type is TaskType.SOURCE_TASK)
        barred = frozenset(() if may_copy else map(task_id, copying))
        if not hands_off:
            barred |= stopped_units(flow, tasks)
        assigner = self._assigners.setdefault(flow_name(flow), Assigner())
        return await asyncio.to_thread(
            assignment_changes, flow, tasks, drivers, assigner, time.monotonic(), barred=barred
        )


def _invalid_spec(in_force: InForce) -> Readiness | None:
    """Return a readiness with the error of an invalid spec, or None if the spec is valid."""
    if not in_force.error:
        return None
    counts = "until then units of lost drivers are assigned, and all else stays as it is"
    if in_force.is_complete:
        counts = f"until then the spec of generation {in_force.generation} stays in force"
    return Readiness.stalled(Reason.INVALID_SPEC, f"{in_force.error}; {counts}")


def _unobserved(object: Object, flow: ReplicationFlow | None, readiness: Readiness) -> _Outcome:
    """Return the outcome for a flow whose problem a user must fix.

    ``flow`` is None if its object is invalid.
    """
    before, generation = flow.status if flow else None, object["metadata"].get("generation")
    status = status_without_units(readiness, before, generation, datetime.now(UTC))
    return _Outcome(status, _RETRY_S if flow else _RESYNC_S)


def _follow_up_s(decided: AssignmentChanges) -> float:
    if decided.follow_up_ms is not None:
        return max(SOON_S, decided.follow_up_ms / 1000 - time.monotonic())
    return _RESYNC_S
