"""Handles the calls of drivers: write a status, write tasks, list tasks."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.api import (
    FlowState,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskStatus,
    TaskType,
    dump,
    has_ended,
    load_work,
)
from headrace.connect import TargetTaken
from headrace.driver.herder_link import answer_error
from headrace.errors import HeadraceError
from headrace.logs import get_logger
from headrace.standalone.fleet import DriverProcess, Fleet
from headrace.standalone.placement_loop import PlacementLoop
from headrace.standalone.task_store import TaskStore

log = get_logger(__name__)


class DriverCalls:
    """Handles the calls of drivers, on the herder's event loop."""

    def __init__(
        self,
        flow: Callable[[str], ReplicationFlow],
        store: TaskStore,
        fleet: Fleet,
        placement: PlacementLoop,
        on_owner_changed: Callable[[str], None],
    ) -> None:
        """Create the handler.

        ``on_owner_changed`` receives the driver to which a claimed or released unit is assigned.
        """
        self._flow, self._store, self._fleet, self._placement = flow, store, fleet, placement
        self._on_owner_changed = on_owner_changed
        self._writers: dict[tuple[str, str], str] = {}  # flow by (target cluster id, topic)
        self.overdue: dict[str, set[str]] = defaultdict(set)
        """Units that were claimed before their live driver had released them, by that driver."""

    def answer(
        self, driver: DriverProcess, call: str, message: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Handle a call, and return its answer. A ``HeadraceError`` is returned as an answer."""
        try:
            if call == "put-tasks":
                self._put_tasks(message)
                return {}
            if call == "list-tasks":
                return {"tasks": self._list_tasks(message)}
            return {"task": dump(self._write_status(message))}
        except HeadraceError as error:
            return answer_error(error)

    def _write_status(self, message: Mapping[str, Any]) -> ReplicationTask:
        task = ReplicationTask.model_validate(message["task"])
        before = task.status
        written = self._store.write_status(
            task, ReplicationTaskStatus.model_validate(message["status"])
        )
        if written.status.driver_incarnation != before.driver_incarnation:
            self._note_overdue(written, before)
            self._on_owner_changed(written.spec.driver_name)
        if has_ended(written) and not has_ended(task):
            self._placement.request()
        return written

    def _note_overdue(self, task: ReplicationTask, before: ReplicationTaskStatus) -> None:
        """Record a unit that was claimed from a driver that does not count as lost."""
        holder = self._fleet.get(before.driver_name)
        taken = task.status.driver_name and holder is not None
        if taken and not self._placement.is_lost(before.driver_incarnation):
            log.warning(
                "driver did not release its unit in time, the unit is taken",
                driver=before.driver_name,
                task=task.metadata.name,
                by=task.status.driver_name,
            )
            self.overdue[before.driver_name].add(task.metadata.name)

    def _put_tasks(self, message: Mapping[str, Any]) -> None:
        connector = ReplicationTask.model_validate(message["connector"])
        flow = connector.spec.flow_name
        topics = {
            (cluster, topic)
            for cluster, names in message["targetTopics"].items()
            for topic in names
        }
        self._refuse_taken(flow, topics)
        tasks = {
            int(index): [load_work(one) for one in work] for index, work in message["tasks"].items()
        }
        type = TaskType(message["type"])
        changed = self._store.put_tasks(connector, type, tasks)
        if type is TaskType.SOURCE_TASK:
            others = {topic: writer for topic, writer in self._writers.items() if writer != flow}
            self._writers = others | dict.fromkeys(topics, flow)
        if changed:
            self._placement.request()

    def _list_tasks(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        connector = ReplicationTask.model_validate(message["connector"])
        return [
            dump(task)
            for task in self._store.of_flow(connector.spec.flow_name)
            if task.spec.type == message["type"]
        ]

    def _refuse_taken(self, flow: str, topics: Iterable[tuple[str, str]]) -> None:
        written: dict[tuple[str, str], set[str]] = defaultdict(set)
        for cluster_id, topic in topics:
            written[self._writers.get((cluster_id, topic), flow), cluster_id].add(topic)
        for (writer, cluster_id), shared in written.items():
            if writer != flow and not self._has_stopped(writer):
                raise TargetTaken.by(writer, flow, shared, cluster_id)

    def _has_stopped(self, flow: str) -> bool:
        """Return True if a flow has stopped. Another flow may then use its target topics."""
        stopped = self._flow(flow).spec.state is FlowState.STOPPED
        return stopped and not any(
            task.status.driver_name
            for task in self._store.of_flow(flow)
            if task.spec.type is not TaskType.SOURCE_WATCH
        )
