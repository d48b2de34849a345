"""What runs on a driver: Worker, connectors and tasks, their states, and the Herder port."""

from headrace.connect.figures import UnitFigures
from headrace.connect.handover import DriverIdentity, may_claim
from headrace.connect.herder import Conflict, Herder, TargetTaken
from headrace.connect.task import Role, Task
from headrace.connect.task_manager import TaskManager
from headrace.connect.worker import Worker

__all__ = [
    "Conflict",
    "DriverIdentity",
    "Herder",
    "Role",
    "TargetTaken",
    "Task",
    "TaskManager",
    "UnitFigures",
    "Worker",
    "may_claim",
]
