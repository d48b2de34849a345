"""Pure: a flow -> the manifests of its children. ``build_*`` makes, ``apply_*`` (elsewhere) does.

A change here is seen in the golden files of ``tests/unit/controller/golden``.
"""

from headrace.controller.resources.children import CONNECTORS, build_children, build_connector
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
    "build_connector",
    "build_deployment",
    "template_hash",
    "template_with",
    "with_defaults",
]
