"""Decides which driver runs each unit, by asking the flow's assignor.

Three places are about placement, from the rule to the write:

- ``headrace.assign`` has the assignors: pure rules on tasks, drivers and weights. A flow selects
  one.
- This room calls them, as Kubernetes' scheduler decides for pods. ``assigner`` decides when, and
  what a unit's spec then contains. ``placer`` calls the assignors of the flows with
  ``assignor_input``. ``assignors`` opens an assignor by its name, and ``assignor_process`` runs a
  plug-in.
- ``standalone.placement_loop`` and ``controller.assignment`` do the I/O of their mode: they name
  the drivers, write the assignments, and call this room again after a change.
"""

from headrace.placement.assigner import (
    Assigner,
    Assignment,
    DriverPool,
    assign_unit,
    pins_in_force,
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
    "task_id",
]
