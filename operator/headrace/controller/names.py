"""Names that the operator, drivers and people meet on objects: labels, annotations, writers."""

import hashlib
from typing import Final

OPERATOR: Final = "headrace-operator"
"""Field manager of what the operator decides: children of a flow, and where a unit runs."""
CONNECTOR: Final = "headrace-connector"
"""Field manager of what a unit does. The operator writes connectors under this name: one field
manager replaces all that it wrote before, so the two halves of a spec need two."""

PAUSE_RECONCILIATION: Final = "headrace.dev/pause-reconciliation"
"""Annotation of a flow: with ``"true"`` the operator leaves it and its children alone."""
MOVE_TO: Final = "headrace.dev/move-to"
"""Annotation of a task: the driver that a person wants it on. Gone once it was acted on."""
PINNED_TO: Final = "headrace.dev/pinned-to"
"""Annotation of a task, written by the operator with the move: it stays on that driver for as long
as there is that driver. On the object, as an operator that starts anew must still know it."""
ZONE: Final = "topology.kubernetes.io/zone"
"""Label of a pod, where the cluster copies it from the node: the rack of a driver."""

FLOW: Final = "headrace.dev/flow"
"""Label: the flow that an object belongs to."""
TEMPLATE: Final = "headrace.dev/template"
"""Label of a driver pod: hash of the template it was made from."""

_LABEL_LENGTH = 63


def label_value(name: str) -> str:
    """``name`` as the value of a label: as it is, or shortened and told apart by a hash."""
    if len(name) <= _LABEL_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LABEL_LENGTH - 9].rstrip('-.')}-{digest}"


def driver_selector(flow: str) -> dict[str, str]:
    """Labels that the driver pods of a flow have, and no other pods. A Deployment's selector can
    never change, so these never do."""
    return {"app.kubernetes.io/component": "driver", FLOW: label_value(flow)}


def flow_labels(flow: str) -> dict[str, str]:
    """Labels of everything that belongs to a flow."""
    return {
        "app.kubernetes.io/name": "headrace",
        "app.kubernetes.io/instance": label_value(flow),
        "app.kubernetes.io/managed-by": "headrace",
        FLOW: label_value(flow),
    }
