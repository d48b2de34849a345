"""What can be refused before anything starts."""

from collections.abc import Iterable, Iterator
from itertools import permutations

from headrace.api import ClusterSpec, ReplicationFlow
from headrace.kafka import check_settings
from headrace.replication import Direction, Loop, TopicFilter, find_loop, policy_for


def check_client(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` for client settings that the client does not know; asks no broker."""
    check_settings(cluster)


def check_policy(flow: ReplicationFlow) -> None:
    """Raise ``InvalidSpec`` when the policy is not known here, or cannot be made."""
    policy_for(flow.spec.policy, flow.spec.source.alias)


def loops(flows: Iterable[ReplicationFlow]) -> Iterator[tuple[ReplicationFlow, str]]:
    """Flows whose renamed topics come back to them by another one, with a sentence. The policies
    are known."""
    for there, back in permutations(flows, 2):
        renames = there.spec.policy.renames
        if not renames or not _opposite(there, back):
            continue
        topics = sorted({*renames, *renames.values()})
        if loop := find_loop(_direction(there), _direction(back), topics):
            yield there, _round(loop, back.metadata.name)


def _round(loop: Loop, back: str) -> str:
    return (
        f"spec.policy.renames: records of {loop.topic} would go round: this flow copies it as "
        f"{loop.there}, flow {back} copies that back as {loop.back}, which this flow copies again; "
        "exclude one of them in spec.topics of its flow"
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
