"""What can be refused before anything starts."""

from collections.abc import Iterable, Iterator
from itertools import permutations

from headrace.api import ClusterSpec, ReplicationFlow
from headrace.api.flow import FlowState
from headrace.kafka import check_settings
from headrace.replication import Direction, Loop, TopicFilter, find_loop, policy_for

Field = tuple[str, ...]


def check_client(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` for client settings that the client does not know; asks no broker."""
    check_settings(cluster)


def check_policy(flow: ReplicationFlow) -> None:
    """Raise ``InvalidSpec`` when the policy is not known here, or cannot be made."""
    policy_for(flow.spec.policy, flow.spec.source.alias)


def loops(flows: Iterable[ReplicationFlow]) -> Iterator[tuple[ReplicationFlow, Field, str]]:
    """Flows whose topics come back to them by another one, with the field and a sentence. The
    policies are known. Of patterns only what they have in common with the other flow's names, and
    with the same pattern, is noticed; headers that a filter asks for may end any loop."""
    copying = [flow for flow in flows if _may_loop(flow)]
    for there, back in permutations(copying, 2):
        if not _opposite(there, back):
            continue
        renames = there.spec.policy.renames or {}
        patterns = {*there.spec.topics.include, *back.spec.topics.include}
        topics = sorted({*renames, *renames.values(), *patterns})
        if loop := find_loop(_direction(there), _direction(back), topics):
            field = ("spec", "policy", "renames" if renames else "type")
            yield there, field, f"{'.'.join(field)}: {_round(loop, back.metadata.name)}"


def _may_loop(flow: ReplicationFlow) -> bool:
    spec = flow.spec
    known = spec.policy.type in ("Default", "Identity", "RenameMap")
    return known and spec.state is not FlowState.STOPPED and spec.record_filter is None


def _round(loop: Loop, back: str) -> str:
    return (
        f"records of {loop.topic} would go round: this flow copies it as {loop.there}, flow {back} "
        f"copies that back as {loop.back}, which this flow copies again; exclude one of them in "
        "spec.topics of its flow, or stop one of the flows (spec.state: Stopped)"
    )


def _opposite(one: ReplicationFlow, other: ReplicationFlow) -> bool:
    return _same(one.spec.source, other.spec.target) and _same(one.spec.target, other.spec.source)


def _same(one: ClusterSpec, other: ClusterSpec) -> bool:
    """As far as that can be seen without asking: they share an address."""
    return bool(_servers(one) & _servers(other))


def _servers(cluster: ClusterSpec) -> set[str]:
    return {server.strip().lower() for server in cluster.bootstrap_servers.split(",")}


def _direction(flow: ReplicationFlow) -> Direction:
    spec = flow.spec
    policy = policy_for(spec.policy, spec.source.alias)
    topics = TopicFilter(spec.topics.include, spec.topics.exclude, policy, spec.target.alias)
    return Direction(topics, policy)
