"""Writes assignments of units, answers to moves, and statuses of flows."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from headrace.api import (
    API_VERSION,
    MOVE_ANNOTATION,
    OPERATOR_MANAGER,
    ConditionType,
    Readiness,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
)
from headrace.controller.assignment import Move, ObjectAssignment, build_assignment
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.events import EventRecorder, Occurrence, is_reported, occurrences
from headrace.k8s import FLOW, TASK, Client, Conflict, NotFound, Object, ObjectInvalid
from headrace.logs import get_logger
from headrace.status import is_significant, status_without_units

log = get_logger(__name__)

_MAX_CONCURRENT_WRITES = 32
"""Maximum number of units that are written at the same time, over all flows."""


class FlowWrites:
    """Writes objects, and puts each response into the cache at once.

    The next reconcile therefore decides from the written state.
    """

    def __init__(self, client: Client, cache: ClusterCache, events: EventRecorder) -> None:
        self._client, self._cache, self._events = client, cache, events
        self._places = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)

    async def post(self, flow: ReplicationFlow, occurrence: Occurrence) -> None:
        """Post an Event about a flow."""
        await self._events.post(flow, occurrence)

    async def assign(self, assignments: Iterable[ObjectAssignment]) -> bool:
        """Write the drivers of units in parallel.

        Return False if a unit had changed or was deleted since it was read.
        """
        answers = await asyncio.gather(
            *(self._write_assignment(one) for one in assignments), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return all(answers)

    async def _write_assignment(self, assignment: ObjectAssignment) -> bool:
        task = assignment.task.metadata
        async with self._places:
            try:
                written = await self._client.apply(
                    build_assignment(assignment), manager=OPERATOR_MANAGER
                )
            except Conflict:
                await self._cache.refresh_task(task.namespace, task.name)
                return False
            except NotFound:
                return False  # the watch will report its deletion
        self._cache.put_task(written)
        log.info(
            "unit assigned",
            task=task.name,
            namespace=task.namespace,
            driver=assignment.driver or "none",
            before=assignment.task.spec.driver_name or "none",
        )
        return True

    async def answer(self, tasks: Iterable[ReplicationTask], moves: Iterable[Move]) -> None:
        """Post an Event for each move that was written or refused, and remove its annotation."""
        now = {task.metadata.name: task for task in tasks}
        for move in moves:
            task = now.get(move.task.metadata.name)
            if task is None or task.metadata.annotations.get(MOVE_ANNOTATION) != move.driver:
                continue
            if not move.refusal and task.spec.driver_name != move.driver:
                continue
            occurrence = Occurrence("MoveRefused", move.refusal, warning=True)
            if not move.refusal:
                occurrence = Occurrence(
                    "Moved", f"moved to {move.driver}, as asked; it stays there"
                )
            await self._events.post(task, occurrence)
            await self._remove_annotation(task, MOVE_ANNOTATION)

    async def _remove_annotation(self, task: ReplicationTask, annotation: str) -> None:
        metadata = task.metadata
        patch = {
            "metadata": {
                "annotations": {annotation: None},
                "resourceVersion": metadata.resource_version,
            }
        }
        with suppress(Conflict, NotFound):  # the unit has changed, and the next reconcile reads it
            patched = await self._client.patch(TASK, metadata.namespace, metadata.name, patch)
            self._cache.put_task(patched)

    async def status(
        self, object: Object, flow: ReplicationFlow | None, status: ReplicationFlowStatus
    ) -> bool:
        """Write the status of ``object`` if it changed, and post an Event for each state change.

        Return False if the custom resource definitions are older than this operator and reject the
        status. The condition Stalled then has the error. ``flow`` is the parsed object, or None if
        it is invalid.
        """
        metadata = object["metadata"]
        if flow is None:
            # The object's status may also be invalid.
            if not is_reported(object, status.conditions[0].message):
                await self._apply_status(metadata, status)
            return True
        if not is_significant(flow.status, status):
            return True
        known, before = True, flow.status.conditions if flow.status else ()
        try:
            await self._apply_status(metadata, status)
        except ObjectInvalid as error:
            known = False
            conditions = {one.type: one for one in (*status.conditions, *before)}
            status = status_without_units(
                Readiness.stalled(Reason.REFUSED, str(error)),
                ReplicationFlowStatus(conditions=tuple(conditions.values())),
                flow.metadata.generation,
                datetime.now(UTC),
            )
            if is_significant(flow.status, status):
                await self._apply_status(metadata, status)
        for occurrence in occurrences(before, status.conditions):
            await self._events.post(flow, occurrence)
        return known

    async def _apply_status(self, metadata: Object, status: ReplicationFlowStatus) -> None:
        named = {key: metadata[key] for key in ("name", "namespace", "uid")}
        written = await self._client.apply(
            {
                "apiVersion": API_VERSION,
                "kind": "ReplicationFlow",
                "metadata": named,
                "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
            },
            manager=OPERATOR_MANAGER,
            subresource="status",
        )
        self._cache.put_flow_written(await self._without_foreign_conditions(written, status))

    async def _without_foreign_conditions(
        self, written: Object, status: ReplicationFlowStatus
    ) -> Object:
        """Remove conditions of headrace's types that another manager wrote and ``status`` lacks.

        Applying a status keeps the fields of other managers.
        """
        there = written["status"]["conditions"]
        ours, wanted = set(ConditionType), {condition.type for condition in status.conditions}
        staying = [one for one in there if one["type"] in wanted or one["type"] not in ours]
        if staying == there:
            return written
        metadata = written["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"conditions": staying},
        }
        try:
            name = metadata["namespace"], metadata["name"]
            return await self._client.patch(FLOW, *name, patch, subresource="status")
        except Conflict:
            return written  # the flow has changed, and the next reconcile reads it
