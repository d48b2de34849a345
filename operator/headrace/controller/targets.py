"""Which flows write one target topic: the later one has to wait. Pure.

A connector looks before it publishes (``herder/target_topics.py``); this is for two that looked at
the same moment, and for flows of different namespaces.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.api import ReplicationFlow, ReplicationTask
from headrace.api.labels import TARGET_LABEL, TOPICS_ANNOTATION
from headrace.replication.policies import HEARTBEATS

FlowName = tuple[str, str]
"""Namespace and name."""
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Taken:
    """A target topic that an earlier flow writes."""

    by: ReplicationFlow
    topic: str


def taken_target(
    flow: ReplicationFlow,
    others: Iterable[ReplicationFlow],
    tasks: Mapping[FlowName, Sequence[ReplicationTask]],
) -> Taken | None:
    """The first target topic of ``flow`` that an earlier one of ``others`` writes too."""
    mine = _written(tasks.get(flow_name(flow), ()))
    for other in sorted(others, key=_age):
        if _age(other) < _age(flow) and (
            common := mine & _written(tasks.get(flow_name(other), ()))
        ):
            return Taken(other, min(common)[1])
    return None


def flow_name(flow: ReplicationFlow) -> FlowName:
    """Namespace and name of a flow."""
    return flow.metadata.namespace, flow.metadata.name


def _age(flow: ReplicationFlow) -> tuple[datetime, FlowName]:
    return flow.metadata.creation_timestamp or _NEVER, flow_name(flow)


def _written(tasks: Sequence[ReplicationTask]) -> set[tuple[str, str]]:
    """(target cluster, topic); heartbeats left out: every flow of a source copies those, and to see
    some twice harms nobody."""
    return {
        (cluster, topic)
        for task in tasks
        if (cluster := task.metadata.labels.get(TARGET_LABEL))
        for topic in task.metadata.annotations.get(TOPICS_ANNOTATION, "").split("\n")
        if topic and topic != HEARTBEATS and not topic.endswith(f".{HEARTBEATS}")
    }
