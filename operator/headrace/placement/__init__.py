"""Decides which driver runs each unit, by asking the flow's assignor.

Three places are about placement, from the rule to the write:

- ``headrace.assign`` has the assignors: pure rules on tasks, drivers and weights, of which a flow
  chooses one.
- This room asks them, as Kubernetes' scheduler decides for pods. ``assigner`` decides when (startup
  grace, drivers that are cordoned or rolling), ``placer`` asks the assignors of the flows,
  ``assignor_input`` is what they are given, ``rates`` smooths the weights of units, ``assignors``
  opens those that can be chosen, ``decision`` is the answer, ``assignment`` what a unit's spec is
  to say of it: pins, lost incarnations, and whether it differs.
- ``standalone.placement_loop`` and ``controller.assignment`` do only the I/O of their mode: they
  name the drivers, write the assignments, and ask again when something changed.
"""

from headrace.placement.assigner import Assigner
from headrace.placement.assignment import (
    Assignment,
    DriverPool,
    assign_unit,
    pins_in_force,
)
from headrace.placement.assignor_input import task_id
from headrace.placement.assignors import check_assignor
from headrace.placement.decision import Placement, PlacementDecision
from headrace.placement.placer import Placer

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
