"""Builds the manifests of a flow's children from the flow. No I/O.

Functions ``build_*`` return manifests, and other modules apply them. The golden files in
``tests/unit/controller/golden`` show the effect of a change.
"""

from headrace.controller.resources.children import (
    CONNECTORS,
    DRIVER_RULES,
    FixedRole,
    build_children,
    build_role,
    build_unit,
)
from headrace.controller.resources.deployment import (
    DriverDefaults,
    build_deployment,
    template_hash,
    template_with,
    with_defaults,
)

__all__ = [
    "CONNECTORS",
    "DRIVER_RULES",
    "DriverDefaults",
    "FixedRole",
    "build_children",
    "build_deployment",
    "build_role",
    "build_unit",
    "template_hash",
    "template_with",
    "with_defaults",
]
