"""Detects two flows that would copy records in a circle. The later flow does not start.

The decision uses the topics that source connectors have found, before units get drivers.
"""

from typing import NamedTuple

from headrace.api import (
    ConditionType,
    FlowState,
    Reason,
    ReplicationFlow,
    ReplicationFlowSpec,
    ReplicationTask,
    TaskType,
    find_condition,
)
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.target_topics import FlowName, flow_age, flow_name
from headrace.replication import (
    CopiedTopics,
    TopicLoop,
    loop_of_topics,
    loop_sentence,
    share_addresses,
)


class _Known(NamedTuple):
    flow: ReplicationFlow
    copied: CopiedTopics
    holds: bool
    """True if drivers still hold source tasks of the flow."""

    def meets(self, flow: ReplicationFlow, copied: CopiedTopics) -> bool:
        """Return True if the other flow may copy in the opposite direction."""
        there, back = self.copied, copied
        return share_addresses(self.flow, flow) or (there[:2] == back[1::-1] and "" not in back[:2])

    def differs(self, other: "_Known | None") -> bool:
        """Return True if a property differs that affects loops."""
        return other is None or (self.flow.spec, *self[1:]) != (other.flow.spec, *other[1:])


_Compared = tuple[ReplicationFlowSpec, CopiedTopics, ReplicationFlowSpec, CopiedTopics]


class Loops:
    """Finds replication loops among all flows. Use it from one event loop."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._before: dict[FlowName, _Known] = {}
        """State of each flow at its last reconcile."""
        self._found: dict[tuple[FlowName, FlowName], tuple[_Compared, TopicLoop | None]] = {}
        """Results for pairs of flows. Comparing 10,000 topics takes tens of milliseconds."""

    def refusal(self, flow: ReplicationFlow) -> str:
        """Return the reason why this flow must not copy, or an empty string if it may."""
        if flow.spec.state is FlowState.STOPPED:
            return ""
        mine = self._copying(flow)
        for other in self._cache.flows():
            if flow_name(other) == flow_name(flow) or not (loop := self._loop(flow, other)):
                continue
            theirs = self._copying(other)
            stopped = other.spec.state is FlowState.STOPPED and not _held(theirs)
            if not stopped and _precedence(other, theirs) < _precedence(flow, mine):
                there = other.metadata
                return loop_sentence(loop, f"{there.name} of namespace {there.namespace}")
        return ""

    def concerned(self, name: FlowName) -> list[FlowName]:
        """Return the flows in the opposite direction that a change of this flow may start or stop.

        The result is empty if the flow has not changed since the last call.
        """
        before, now = self._before.pop(name, None), self._known(name)
        if now is not None:
            self._before[name] = now
        else:
            self._found = {pair: one for pair, one in self._found.items() if name not in pair}
        if before is now or (now is not None and not now.differs(before)):
            return []
        changed = [one for one in (before, now) if one is not None]
        return [
            rival
            for other in self._cache.flows()
            if (rival := flow_name(other)) != name
            and any(one.meets(other, self._cache.copied(rival)) for one in changed)
        ]

    def _loop(self, flow: ReplicationFlow, other: ReplicationFlow) -> TopicLoop | None:
        pair = flow_name(flow), flow_name(other)
        copied, back = map(self._cache.copied, pair)
        compared = flow.spec, copied, other.spec, back
        known = self._found.get(pair)
        if known is None or known[0] != compared:
            loop = loop_of_topics(flow, copied, other, back)
            known = self._found[pair] = compared, loop
        return known[1]

    def _copying(self, flow: ReplicationFlow) -> list[ReplicationTask]:
        return [one for one in self._cache.tasks(flow) if one.spec.type is TaskType.SOURCE_TASK]

    def _known(self, name: FlowName) -> _Known | None:
        flow = self._cache.valid_flow(name)
        if flow is None:
            return None
        return _Known(flow, self._cache.copied(name), _held(self._copying(flow)))


def _held(tasks: list[ReplicationTask]) -> bool:
    return any(task.status.driver_name for task in tasks)


def _precedence(flow: ReplicationFlow, tasks: list[ReplicationTask]) -> tuple[object, ...]:
    """Return a sort key. Of two flows in a loop, the flow with the lower key continues.

    A flow that was not refused precedes a refused one, a running flow precedes others, and an older
    flow precedes a younger one. Restarting a flow therefore does not stop the flow in the opposite
    direction.
    """
    ready = find_condition(flow.status.conditions if flow.status else (), ConditionType.READY)
    refused = ready is not None and ready.reason is Reason.REPLICATION_LOOP
    runs = any(task.spec.driver_name for task in tasks)
    return refused, not runs, flow_age(flow)
