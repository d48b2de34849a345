"""Which flows write one target topic: the later one has to wait. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.api import ReplicationFlow, ReplicationTask, TaskType
from headrace.errors import InvalidSpec
from headrace.replication import policy_for
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
    """The first target topic of ``flow`` that an earlier one of ``others`` writes too.

    The operator has no Kafka client: the target is one when an address of it is named by both
    flows. (Drivers see more: two flows of one source meet in its progress records.)
    """
    for other in sorted(others, key=_age):
        if _age(other) < _age(flow) and _servers(other) & _servers(flow):
            common = _written(flow, tasks) & _written(other, tasks)
            if common:
                return Taken(other, min(common))
    return None


def flow_name(flow: ReplicationFlow) -> FlowName:
    """Namespace and name of a flow."""
    return flow.metadata.namespace, flow.metadata.name


def _age(flow: ReplicationFlow) -> tuple[datetime, FlowName]:
    return flow.metadata.creation_timestamp or _NEVER, flow_name(flow)


def _servers(flow: ReplicationFlow) -> set[str]:
    return {server.strip() for server in flow.spec.target.bootstrap_servers.lower().split(",")}


def _written(
    flow: ReplicationFlow, tasks: Mapping[FlowName, Sequence[ReplicationTask]]
) -> set[str]:
    try:
        policy = policy_for(flow.spec.policy, flow.spec.source.alias)
    except InvalidSpec:
        return set()  # a policy that is not there writes nothing; its driver says so
    return {policy.target_topic(topic) for topic in _topics(tasks.get(flow_name(flow), ()))}


def _topics(tasks: Sequence[ReplicationTask]) -> Iterator[str]:
    for task in tasks:
        if task.spec.type is TaskType.SOURCE_TASK:
            topics = (packed.topic for packed in task.spec.partitions)
            # Every flow of a source copies its heartbeats: to see some twice harms nobody.
            yield from (topic for topic in topics if topic != HEARTBEATS)
