"""Objects that the parts of one source task share."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Self

from structlog.typing import FilteringBoundLogger

from headrace.assign import TaskId
from headrace.connect.runtime.contested_partitions import Contested
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.lifecycle import LifeCycle
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.source.source_status import SourceStatus
from headrace.connect.source.task_progress import TaskProgress
from headrace.connect.takeover.offset_syncing import OffsetSyncing
from headrace.connect.topics.losses import sentence
from headrace.logs import get_logger


@dataclass(frozen=True)
class TaskContext:
    """Context of one instance of a source task."""

    id: TaskId
    flow: FlowContext
    life: LifeCycle
    log: FilteringBoundLogger
    progress: TaskProgress
    contested: Contested
    syncing: OffsetSyncing
    reported: SourceStatus

    @classmethod
    def make(
        cls,
        id: TaskId,
        flow: FlowContext,
        ownership: Ownership,
        *,
        changed: Callable[[], None],
        restarts: int,
        check_pool: Executor,
    ) -> Self:
        """Create the context; ``SourceTask`` describes the arguments."""
        log = get_logger(__name__).bind(flow=flow.name, task=id.name)
        life = LifeCycle(ownership, log, flow.clock, changed, restarts)
        syncing = OffsetSyncing(flow, check_pool)
        reported = SourceStatus(life, flow.clock, partial(sentence, flow), flow.spec)
        return cls(
            id=id,
            flow=flow,
            life=life,
            log=log,
            progress=TaskProgress(flow, ownership, syncing, reported.copied),
            contested=flow.contested(id.name),
            syncing=syncing,
            reported=reported,
        )
