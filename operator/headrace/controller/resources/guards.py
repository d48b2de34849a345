"""What keeps others from disturbing the drivers: drains one at a time, no unasked connections."""

from headrace.api import ReplicationFlow
from headrace.controller.names import driver_selector
from headrace.controller.resources.deployment import HTTP_PORT
from headrace.controller.resources.metadata import build_metadata, driver_name
from headrace.k8s import Object


def build_pod_disruption_budget(flow: ReplicationFlow) -> Object:
    """Return the budget of drains: one driver at a time, unless the flow says otherwise.

    A driver that is not ready never keeps a node from draining.
    """
    asked = flow.spec.drivers.pod_disruption_budget.model_dump(by_alias=True, exclude_none=True)
    budget = {field: int(count) if count.isdecimal() else count for field, count in asked.items()}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(flow, driver_name(flow)),
        "spec": {
            **(budget or {"maxUnavailable": 1}),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": driver_selector(flow.metadata.name)},
        },
    }


def build_network_policy(flow: ReplicationFlow) -> Object:
    """In: probes and metrics. Out: anything, as brokers lie anywhere and name each other."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(flow, driver_name(flow)),
        "spec": {
            "podSelector": {"matchLabels": driver_selector(flow.metadata.name)},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": HTTP_PORT, "protocol": "TCP"}]}],
        },
    }
