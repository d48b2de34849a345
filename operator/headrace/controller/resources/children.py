"""All children of a flow, in the order in which they are applied."""

from headrace.api import ReplicationFlow
from headrace.controller.resources.access import (
    build_role,
    build_role_binding,
    build_service_account,
)
from headrace.controller.resources.deployment import build_deployment
from headrace.controller.resources.guards import build_network_policy, build_pod_disruption_budget
from headrace.k8s import Object


def build_children(
    flow: ReplicationFlow, image: str, *, network_policy: bool, chaos: bool = False
) -> list[Object]:
    """What the drivers may do comes before the drivers; units are not among them."""
    return [
        build_service_account(flow),
        build_role(flow),
        build_role_binding(flow),
        build_pod_disruption_budget(flow),
        *([build_network_policy(flow)] if network_policy else []),
        build_deployment(flow, image, chaos=chaos),
    ]
