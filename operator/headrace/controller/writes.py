"""What the operator writes on flows and units: assignments, answers to wishes, statuses."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from headrace.api import (
    API_VERSION,
    ConditionType,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
)
from headrace.api.labels import MOVE_ANNOTATION, OPERATOR_MANAGER
from headrace.controller.assignment import Assignment, Move, build_assignment
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.events import EventRecorder, Occurrence, occurrences
from headrace.controller.status import is_news, status_without_units
from headrace.controller.trouble import is_said
from headrace.k8s import Client, Conflict, NotFound, Object, Undeclared
from headrace.k8s.kinds import FLOW, TASK
from headrace.logs import get_logger
from headrace.status.flow_status import Readiness

log = get_logger(__name__)

_AT_ONCE = 32
"""Units that are written at a time, over all flows."""


class FlowWrites:
    """Tells ``world`` of each write at once: the next look must not decide by what was."""

    def __init__(self, client: Client, cache: ClusterCache, events: EventRecorder) -> None:
        self._client, self._cache, self._events = client, cache, events
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def tell(self, flow: ReplicationFlow, happened: Occurrence) -> None:
        """Tell of a flow, as an Event."""
        await self._events.post(flow, happened)

    async def assign(self, wanted: Iterable[Assignment]) -> bool:
        """Write where units run, many at a time; whether each was still as we had seen it."""
        answers = await asyncio.gather(
            *(self._write_assignment(one) for one in wanted), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return all(answers)

    async def _write_assignment(self, assignment: Assignment) -> bool:
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
                return False  # its end is about to be seen
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
        """Take the annotation off units whose move is written, or cannot be."""
        now = {task.metadata.name: task for task in tasks}
        for move in moves:
            task = now.get(move.task.metadata.name)
            if task is None or task.metadata.annotations.get(MOVE_ANNOTATION) != move.driver:
                continue
            if not move.refusal and task.spec.driver_name != move.driver:
                continue
            said = Occurrence("MoveRefused", move.refusal, warning=True)
            if not move.refusal:
                said = Occurrence("Moved", f"moved to {move.driver}, as asked; it stays there")
            await self._events.post(task, said)
            await self._take_off(task, MOVE_ANNOTATION)

    async def _take_off(self, task: ReplicationTask, annotation: str) -> None:
        metadata = task.metadata
        patch = {
            "metadata": {
                "annotations": {annotation: None},
                "resourceVersion": metadata.resource_version,
            }
        }
        with suppress(Conflict, NotFound):  # it changed: the next look sees how
            patched = await self._client.patch(TASK, metadata.namespace, metadata.name, patch)
            self._cache.put_task(patched)

    async def refusal(self, object: Object, why: str) -> None:
        """On a flow that is not understood, so that it has no status of ours to go by either."""
        verdict = Readiness(False, True, Reason.INVALID_SPEC, why)
        metadata = object["metadata"]
        if is_said(object, why):
            return
        status = status_without_units(
            verdict, ReplicationFlowStatus(), metadata.get("generation"), datetime.now(UTC)
        )
        await self._apply_status(metadata, status)

    async def status(self, flow: ReplicationFlow, status: ReplicationFlowStatus) -> bool:
        """Say how a flow stands, if that is news; what changed is told as Events.

        False: the definitions here are older than this operator and do not know what is to be
        said, which the flow says instead.
        """
        if not is_news(flow.status, status):
            return True
        known, before = True, flow.status.conditions if flow.status else ()
        metadata = {
            "name": flow.metadata.name,
            "namespace": flow.metadata.namespace,
            "uid": flow.metadata.uid,
        }
        try:
            await self._apply_status(metadata, status)
        except Undeclared as error:
            known = False
            conditions = {one.type: one for one in (*status.conditions, *before)}
            status = status_without_units(
                Readiness(False, True, Reason.REFUSED, str(error)),
                ReplicationFlowStatus(conditions=tuple(conditions.values())),
                flow.metadata.generation,
                datetime.now(UTC),
            )
            if is_news(flow.status, status):
                await self._apply_status(metadata, status)
        for happened in occurrences(before, status.conditions):
            await self._events.post(flow, happened)
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
        self._cache.put_flow_written(await self._without_strays(written, status))

    async def _without_strays(self, written: Object, status: ReplicationFlowStatus) -> Object:
        """Take off conditions of ours that somebody else wrote and we do not say: to apply a status
        leaves what others put into it."""
        there = written["status"]["conditions"]
        ours, said = set(ConditionType), {condition.type for condition in status.conditions}
        staying = [one for one in there if one["type"] in said or one["type"] not in ours]
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
            return written  # it changed: the next look sees how
