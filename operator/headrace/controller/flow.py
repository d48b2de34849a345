"""The reconcile of a ReplicationFlow: a chain that is read from top to bottom."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.api import (
    API_VERSION,
    FlowState,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    Unbuilt,
    unbuilt,
)
from headrace.api.labels import CONNECTOR_MANAGER, OPERATOR_MANAGER, PAUSE_ANNOTATION
from headrace.assign import TaskId
from headrace.controller.assignment import Assignment, Move, Plan, build_assignment, plan
from headrace.controller.children import Children
from headrace.controller.drivers import Drivers, drivers_of
from headrace.controller.events import EventRecorder, Occurrence, occurrences
from headrace.controller.resources import CONNECTORS, build_children, build_connector, template_hash
from headrace.controller.status import Facts, news_in, paused_status, refused_status, status_of
from headrace.controller.targets import FlowName, Taken, flow_name, taken_target
from headrace.controller.trouble import trouble
from headrace.controller.world import World
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import Client, Conflict, NotFound, Object
from headrace.k8s.kinds import TASK
from headrace.logs import get_logger
from headrace.replication.flow_status import Verdict
from headrace.scheduling import Scheduler, task_id

log = get_logger(__name__)

_SEE_AGAIN_S = 1.0
"""When something was in the way that will pass without a change that we would hear of."""
_RESYNC_S = 600.0


@dataclass(frozen=True)
class Settings:
    """What the operator was started with, as far as flows are concerned."""

    driver_image: str
    network_policy: bool = False


class FlowReconciler:
    """Brings flows to where their specs want them. For one event loop."""

    def __init__(
        self, client: Client, world: World, children: Children, events: EventRecorder,
        settings: Settings,
    ) -> None:
        self._client, self._world, self._children = client, world, children
        self._events, self._settings = events, settings
        self._schedulers: dict[FlowName, Scheduler] = {}
        self._writes = asyncio.Semaphore(32)  # of units at a time, over all flows
        self._read_s: dict[FlowName, float] = {}

    async def reconcile(self, name: FlowName) -> float | None:
        """One look at one flow; in how many seconds to look again, None when it is gone."""
        await self._read_anew_sometimes(name)
        object = self._world.flow_object(name)
        if object is None or "deletionTimestamp" in object["metadata"]:
            self._forget(name)
            return None
        try:
            flow = self._world.flow(name)
        except InvalidSpec as error:
            await self._write_refusal(object, str(error))
            return _RESYNC_S
        if flow.metadata.annotations.get(PAUSE_ANNOTATION) == "true":
            await self._write_status(flow, paused_status(flow, datetime.now(UTC)))
            return _RESYNC_S

        missing = self._not_built(flow)
        hindrance = self._unseen()
        if not missing.refused:
            hindrance = await self._apply_children(flow) or hindrance
        taken = taken_target(
            flow, self._world.flows(), {flow_name(f): self._world.tasks(f) for f in self._world.flows()}
        )
        drivers = self._drivers(flow)
        decided = await self._plan(flow, drivers, taken)
        settled = await self._write_assignments(decided.assignments)
        await self._answer(decided.moves)
        facts = Facts(
            flow, self._world.tasks(flow), drivers, missing, taken, hindrance, decided.problem
        )
        await self._write_status(flow, status_of(facts, datetime.now(UTC)))
        return _next_look_s(decided, settled and hindrance is None)
