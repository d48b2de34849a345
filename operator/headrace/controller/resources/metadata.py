"""What all children of a flow have in common: name, labels, owner."""

from headrace.api import ReplicationFlow
from headrace.controller.names import flow_labels
from headrace.k8s import Object, owner_reference


def driver_name(flow: ReplicationFlow) -> str:
    """Name of what the drivers of a flow consist of: Deployment, ServiceAccount, Role ..."""
    return f"{flow.metadata.name}-driver"


def build_metadata(flow: ReplicationFlow, name: str) -> Object:
    """Metadata of a child: when the flow is deleted, the API server's garbage collector deletes
    the child too, whether the operator runs or not."""
    return {
        "name": name,
        "namespace": flow.metadata.namespace,
        "labels": flow_labels(flow.metadata.name),
        "ownerReferences": [owner_reference(flow)],
    }
