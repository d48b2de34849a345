"""Builds the manifests of a flow's children from the flow. No I/O.

Functions ``build_*`` return manifests, and other modules apply them. The golden files in
``tests/unit/controller/golden`` show the effect of a change.
"""

from headrace.controller.resources.children import CONNECTORS, build_children, build_unit
from headrace.controller.resources.deployment import (
    DriverDefaults,
    build_deployment,
    template_hash,
    template_with,
    with_defaults,
)

__all__ = [
    "CONNECTORS",
    "DriverDefaults",
    "build_children",
    "build_deployment",
    "build_unit",
    "template_hash",
    "template_with",
    "with_defaults",
]
