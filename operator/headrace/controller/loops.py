"""Two flows whose records would go round between two clusters: the later one does not start.

Decided by the topics that their source connectors found, before units get drivers.
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
    condition,
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
    """Whether drivers still hold units of it that copy."""

    def meets(self, flow: ReplicationFlow, copied: CopiedTopics) -> bool:
        """Whether that one goes in the other direction, perhaps."""
        there, back = self.copied, copied
        return share_addresses(self.flow, flow) or (there[:2] == back[1::-1] and "" not in back[:2])

    def differs(self, other: "_Known | None") -> bool:
        """Return whether a property differs on which loops depend."""
        return other is None or (self.flow.spec, *self[1:]) != (other.flow.spec, *other[1:])


_Compared = tuple[ReplicationFlowSpec, CopiedTopics, ReplicationFlowSpec, CopiedTopics]


class Loops:
    """Replication loops among all flows. For one event loop."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._before: dict[FlowName, _Known] = {}
        """At the last reconcile of each flow."""
        self._found: dict[tuple[FlowName, FlowName], tuple[_Compared, TopicLoop | None]] = {}
        """With 10,000 topics this takes tens of milliseconds, for which no Lease should wait."""

    def refusal(self, flow: ReplicationFlow) -> str:
        """Why this flow must not copy; empty when it may."""
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
        """Return the flows in the other direction that may start or stop because of this flow.

        A change of this flow, or its end, can allow or forbid them to copy. The result is empty if
        nothing changed since the last call.
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
        flow = self._cache.understood(name)
        if flow is None:
            return None
        return _Known(flow, self._cache.copied(name), _held(self._copying(flow)))


def _held(tasks: list[ReplicationTask]) -> bool:
    return any(task.status.driver_name for task in tasks)


def _precedence(flow: ReplicationFlow, tasks: list[ReplicationTask]) -> tuple[object, ...]:
    """Return the order of precedence, least first; the first flow continues.

    A flow that was not rejected precedes others, then a running flow, then the older one. A flow
    that is started again therefore does not stop the flow in the other direction.
    """
    ready = condition(flow.status.conditions if flow.status else (), ConditionType.READY)
    refused = ready is not None and ready.reason is Reason.REPLICATION_LOOP
    runs = any(task.spec.driver_name for task in tasks)
    return refused, not runs, flow_age(flow)
