"""What all children of a flow have in common: name, labels, owner."""

from typing import Any

from headrace.api import API_VERSION, ReplicationFlow
from headrace.controller.names import flow_labels

Manifest = dict[str, Any]
"""An object as the API server takes it."""


def driver_name(flow: ReplicationFlow) -> str:
    """Name of what the drivers of a flow consist of: Deployment, ServiceAccount, Role ..."""
    return f"{flow.metadata.name}-driver"


def build_metadata(flow: ReplicationFlow, name: str) -> Manifest:
    """Metadata of a child: when the flow is deleted, the API server's garbage collector deletes
    the child too, whether the operator runs or not."""
    return {
        "name": name,
        "namespace": flow.metadata.namespace,
        "labels": flow_labels(flow.metadata.name),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": flow.kind,
                "name": flow.metadata.name,
                "uid": flow.metadata.uid,
                "controller": True,
            }
        ],
    }
