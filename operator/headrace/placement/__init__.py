"""Decides which driver runs each unit, by asking the flow's assignor.

The herder of ``headrace run`` and the operator both decide by it, as Kubernetes' scheduler does for
pods: ``placer`` asks, ``decision`` is the answer, ``assignor_input`` is what an assignor is given,
``rates`` smooths the weights of units, ``assignors`` are those that can be asked.
"""

from headrace.placement.assignor_input import task_id
from headrace.placement.assignors import check_assignor
from headrace.placement.decision import Placement, PlacementDecision
from headrace.placement.placer import Placer

__all__ = ["Placement", "PlacementDecision", "Placer", "check_assignor", "task_id"]
