"""The lag that a task reports."""

from typing import Protocol

from headrace.api import Lag, ReplicationTaskStatus


class _HasStatus(Protocol):
    @property
    def status(self) -> ReplicationTaskStatus: ...


def lag_of(task: _HasStatus) -> Lag:
    """Return the lag in the status of a task, which must have one."""
    assert task.status.lag is not None
    return task.status.lag
