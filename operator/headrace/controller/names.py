"""Labels and annotations that only the operator writes; those that others share are in ``api``."""

from typing import Final

from headrace.api import COMPONENT_LABEL, DRIVER_COMPONENT, FLOW_LABEL, label_value

PINNED_TO: Final = "headrace.dev/pinned-to"
"""Annotation of a task, written together with a move that a person asked for: it stays on that
driver for as long as there is that driver. On the object, as an operator that starts again must
still know it."""
TEMPLATE: Final = "headrace.dev/template"
"""Label of a driver pod: hash of the template it was made from."""
POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""Label of a driver pod and of its ReplicaSet: the Deployment controller's own hash."""
ZONE: Final = "topology.kubernetes.io/zone"
"""Label of a pod, where the cluster copies it from the node: the rack of a driver."""


def driver_selector(flow: str) -> dict[str, str]:
    """Labels that the driver pods of a flow have, and no other pods. A Deployment's selector can
    never change, so these never do."""
    return {COMPONENT_LABEL: DRIVER_COMPONENT, FLOW_LABEL: label_value(flow)}


def flow_labels(flow: str) -> dict[str, str]:
    """Labels of everything that belongs to a flow."""
    return {
        "app.kubernetes.io/name": "headrace",
        "app.kubernetes.io/instance": label_value(flow),
        "app.kubernetes.io/managed-by": "headrace",
        FLOW_LABEL: label_value(flow),
    }
