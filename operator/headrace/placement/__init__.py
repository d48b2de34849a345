"""Decides which driver runs each unit, by calling the flow's assignor.

Placement has three parts:

- ``headrace.assign`` contains the assignors: pure functions of tasks, drivers and weights. A flow
  selects one.
- This package calls them. ``assigner`` decides when assignors are called, and what a unit's spec
  then contains. ``placer`` calls the assignors of the flows with the input of ``assignor_input``.
  ``assignors`` opens an assignor by its name, and ``assignor_process`` runs a plug-in.
- ``standalone.placement_loop`` and ``controller.assignment`` do the I/O of their mode: they list
  the drivers, write the assignments, and call this package again after a change.
"""

from headrace.placement.assigner import (
    Assigner,
    Assignment,
    DriverPool,
    assign_unit,
    pins_in_force,
    stopped_units,
)
from headrace.placement.assignor_input import task_id
from headrace.placement.assignors import check_assignor
from headrace.placement.placer import Placement, PlacementDecision, Placer

__all__ = [
    "Assigner",
    "Assignment",
    "DriverPool",
    "Placement",
    "PlacementDecision",
    "Placer",
    "assign_unit",
    "check_assignor",
    "pins_in_force",
    "stopped_units",
    "task_id",
]
