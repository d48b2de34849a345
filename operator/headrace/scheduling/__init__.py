"""Where the units of flows run: what flows, their units and drivers say, put to an assignor.

The herder of ``headrace run`` and the operator decide by it, as Kubernetes' scheduler does for
pods: ``scheduler`` asks, ``schedule`` is what it answers, ``facts`` is what an assignor is told,
``rates`` smooths what units weigh, ``assignors`` are those that are asked.
"""

from headrace.scheduling.assignors import check_assignor
from headrace.scheduling.facts import task_id
from headrace.scheduling.schedule import Placement, Schedule
from headrace.scheduling.scheduler import Scheduler

__all__ = ["Placement", "Schedule", "Scheduler", "check_assignor", "task_id"]
