"""Worker that runs the connectors of a flow with their tasks."""

from headrace.connect.runtime.figures import CommitCounts, UnitFigures
from headrace.connect.runtime.herder import (
    EpochAltered,
    Herder,
    TargetTaken,
    TaskConflict,
)
from headrace.connect.runtime.ownership import DriverIdentity, may_claim
from headrace.connect.runtime.task_manager import Role, TaskManager
from headrace.connect.worker import Worker

__all__ = [
    "CommitCounts",
    "DriverIdentity",
    "EpochAltered",
    "Herder",
    "Role",
    "TargetTaken",
    "TaskConflict",
    "TaskManager",
    "UnitFigures",
    "Worker",
    "may_claim",
]
