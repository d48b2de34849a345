"""Pure: a flow -> the manifests of its children. ``build_*`` makes, ``apply_*`` (elsewhere) does.

A change here is seen in the golden files of ``tests/unit/controller/golden``.
"""

from headrace.controller.resources.children import build_children
from headrace.controller.resources.defaults import DriverDefaults, template_with, with_defaults
from headrace.controller.resources.deployment import build_deployment, template_hash
from headrace.controller.resources.metadata import driver_name
from headrace.controller.resources.units import CONNECTORS, build_connector

__all__ = [
    "CONNECTORS",
    "DriverDefaults",
    "build_children",
    "build_connector",
    "build_deployment",
    "driver_name",
    "template_hash",
    "template_with",
    "with_defaults",
]
