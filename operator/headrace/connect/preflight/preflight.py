"""What can be refused before anything starts."""

from collections.abc import Iterable, Iterator
from itertools import permutations

from headrace.api import ClusterSpec, FlowState, ReplicationFlow
from headrace.kafka import check_settings
from headrace.replication import (
    loop_of_patterns,
    loop_sentence,
    may_loop,
    policy_for,
    share_addresses,
)

Field = tuple[str, ...]


def check_client(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` for client settings that the client does not know; asks no broker."""
    check_settings(cluster)


def check_policy(flow: ReplicationFlow) -> None:
    """Raise ``InvalidSpec`` when the policy is not known here, or cannot be made."""
    policy_for(flow.spec.replication_policy, flow.spec.source.alias)


def loops(flows: Iterable[ReplicationFlow]) -> Iterator[tuple[ReplicationFlow, Field, str]]:
    """Flows whose topics come back to them by another one, as their patterns show it, with the
    field and a sentence. The policies are known."""
    running = (flow for flow in flows if flow.spec.state is not FlowState.STOPPED)
    for there, back in permutations(filter(may_loop, running), 2):
        if share_addresses(there, back) and (loop := loop_of_patterns(there, back)):
            field = (
                "spec",
                "replicationPolicy",
                "renames" if there.spec.replication_policy.renames else "type",
            )
            yield there, field, f"{'.'.join(field)}: {loop_sentence(loop, back.metadata.name)}"
