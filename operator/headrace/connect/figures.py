"""What a driver can say of the units that it runs: what is reported, and what only grows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.api import ReplicationTaskStatus
from headrace.assign import TaskId
from headrace.movers import Copied


@dataclass(frozen=True)
class UnitFigures:
    """One unit, as it is now."""

    id: TaskId
    status: ReplicationTaskStatus
    """What its next report would say."""
    copied: Copied | None = None
    """Of a source task."""
    taken: int = 0
    """See ``Contested.taken``."""
    beats: Mapping[str, float] = field(default_factory=dict)
    """Of a heartbeat task: see ``HeartbeatTask.beats``."""
