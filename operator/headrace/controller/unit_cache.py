"""The units of all flows, parsed once for each change."""

from dataclasses import dataclass

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.controller.targets import FlowName, copied_topics, flow_name, written_targets
from headrace.errors import InvalidSpec
from headrace.k8s import Object, is_owned, parse
from headrace.logs import get_logger
from headrace.placement import task_id

log = get_logger(__name__)


@dataclass(frozen=True)
class UnitChange:
    """What a unit was, and is."""

    before: ReplicationTask | None
    after: ReplicationTask | None

    @property
    def of_targets(self) -> bool:
        """Whether other topics are copied or written, or for another flow."""
        return _targets(self.before) != _targets(self.after)

    @property
    def of_figures_only(self) -> bool:
        """Whether nothing changed but what is measured, and what is between connectors and their
        tasks: a new connector writes its epoch into all of them."""
        before, after = self.before, self.after
        return before is not None and after is not None and _acted_on(before) == _acted_on(after)


class UnitCache:
    """By flow."""

    def __init__(self) -> None:
        self._units: dict[FlowName, dict[str, ReplicationTask]] = {}
        self._in_order: dict[FlowName, tuple[str | None, list[ReplicationTask]]] = {}
        """Asked for several times a reconcile: of 10,000 units each would take 40 ms."""
        self._invalid: dict[FlowName, dict[str, str]] = {}
        """What is wrong with a unit, by its name."""

    def of(self, flow: ReplicationFlow) -> list[ReplicationTask]:
        """Those of this very flow, in order; not those of an earlier flow of that name."""
        name, uid = flow_name(flow), flow.metadata.uid
        known = self._in_order.get(name)
        if known is None or known[0] != uid:
            there = self._units.get(name, {}).values()
            mine = [task for task in there if is_owned(task.metadata.owner_references, flow)]
            mine.sort(key=lambda task: (task.spec.type, task.spec.index))
            known = self._in_order[name] = (uid, mine)
        return list(known[1])

    def invalid_unit(self, name: FlowName) -> str:
        """What is wrong with a unit of a flow that is not understood; empty when all are."""
        return next(iter(self._invalid.get(name, {}).values()), "")

    def put(self, object: Object) -> UnitChange:
        """A unit is there, or changed."""
        return self._replace(object, self._understood(object))

    def drop(self, object: Object) -> UnitChange:
        """A unit is gone."""
        self._invalid.get(flow_of(object), {}).pop(object["metadata"]["name"], None)
        return self._replace(object, None)

    def _replace(self, object: Object, task: ReplicationTask | None) -> UnitChange:
        flow, name = flow_of(object), object["metadata"]["name"]
        self._in_order.pop(flow, None)
        units = self._units.setdefault(flow, {})
        before = units.pop(name, None)
        if task is not None:
            units[name] = task
        return UnitChange(before, task)

    def _understood(self, object: Object) -> ReplicationTask | None:
        """A unit; None for one that is not understood, which ``invalid_unit`` reports.

        None as well for one whose name is not that of the unit in its spec: there would be two.
        """
        invalid, name = self._invalid.setdefault(flow_of(object), {}), object["metadata"]["name"]
        invalid.pop(name, None)
        try:
            task = parse(ReplicationTask, object)
            if task_id(task).name == name:
                return task
            why = f"it says that it is {task_id(task).name}: delete it"
        except InvalidSpec as error:
            why = invalid[name] = str(error)
        namespace = object["metadata"]["namespace"]
        log.warning("unit not understood", task=name, namespace=namespace, why=why)
        return None


def _acted_on(task: ReplicationTask) -> object:
    """What the operator acts on."""
    figures = {"lag": None, "bytes_per_second": None}
    return (
        task.spec.model_copy(update={"connector_epoch": 0}),
        task.status.model_copy(update={**figures, "observed_generation": None}),
        task.metadata.labels,
        task.metadata.annotations,
    )


def flow_of(unit: Object) -> FlowName:
    """The flow that a unit names in its spec."""
    return unit["metadata"]["namespace"], unit["spec"].get("flowName", "")


def _targets(task: ReplicationTask | None) -> object:
    """What a unit writes, and for whom."""
    return task and (
        task.metadata.owner_references,
        written_targets([task]),
        copied_topics([task]),
    )
