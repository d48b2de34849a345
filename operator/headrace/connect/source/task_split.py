"""The source tasks of a flow, as its source connector splits and publishes them."""

from collections.abc import Iterable, Mapping

from structlog.typing import FilteringBoundLogger

from headrace.api import HEARTBEATS, ReplicationTask, TaskType, TopicPartition, TopicPartitions
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.herder import Herder, TargetTaken, TaskConflict
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.replication.splitting import Split, SplitConfig, SplitState, TaskReport, resplit

_NOTHING: frozenset[TopicPartition] = frozenset()


class HeartbeatsTaken(Exception):
    """Another flow copies this source's heartbeats to this target."""


class TaskSplit:
    """Split of one connector into tasks, called in its thread."""

    def __init__(
        self,
        context: FlowContext,
        ownership: Ownership,
        herder: Herder,
        log: FilteringBoundLogger,
    ) -> None:
        self._context, self._ownership, self._herder = context, ownership, herder
        self._log = log
        self.state: SplitState | None = None
        """Published split; None if it is not known."""

    def step(self, weights: Mapping[TopicPartition, float | None]) -> bool:
        """Move the tasks one step towards the split; whether none has a change to acknowledge.

        ``weights``: records a second of each partition to copy, as far as they are known.
        """
        before = self.state or self._take_over()
        published = self._tasks()
        tasks = self._context.spec.tasks
        after = resplit(
            weights,
            before,
            {
                (index := task.spec.index): TaskReport.of(task, before.tasks.get(index, _NOTHING))
                for task in published
            },
            self._now_ms(),
            SplitConfig(tasks.max, tasks.movement_budget),
        )
        changed = _others_wrote(published, before)
        if changed:
            self._log.warning("put right what somebody else changed", tasks=changed)
        if changed or after.tasks != before.tasks:
            self._publish(after)
            self._log.info(
                "split",
                partitions=len(weights),
                tasks=len(after.tasks),
                leaving=len(after.leaving),
            )
        self._log_unreleased(after, published)
        self.state = after
        return after.settled

    def _log_unreleased(self, after: SplitState, published: Iterable[ReplicationTask]) -> None:
        owners = {task.spec.index: task.status.driver_name for task in published}
        for at, index in after.taken.items():
            self._log.warning(
                "partition taken from a task that did not release it in time",
                partition=str(at),
                index=index,
                driver=owners.get(index),
            )
        for at, index in after.returned.items():
            self._log.info(
                "partition not moved for balance: its task did not release it in time",
                partition=str(at),
                index=index,
                driver=owners.get(index),
            )

    def _take_over(self) -> SplitState:
        """Keep the split of an earlier connector: a new connector moves nothing."""
        state = SplitState(_split_of(self._tasks()), resumed_ms=self._now_ms())
        # Written unchanged: from now on the herder refuses an earlier connector's writes.
        self._publish(state)
        return state

    def _tasks(self) -> list[ReplicationTask]:
        return self._herder.list_tasks(self._ownership.task, TaskType.SOURCE_TASK)

    def _publish(self, state: SplitState) -> None:
        self.state = None  # until the herder has answered, what it has written is not known
        topics = {
            self._context.policy.target_topic(at.topic)
            for held in state.tasks.values()
            for at in held
        }
        try:
            self._herder.put_tasks(
                self._ownership.task,
                TaskType.SOURCE_TASK,
                {index: TopicPartitions.pack(held) for index, held in state.tasks.items()},
                {self._context.target_cluster_id: sorted(topics)},
                self._context.source_cluster_id,
            )
        except TargetTaken as error:
            if error.topics == {self._context.policy.target_topic(HEARTBEATS)}:
                raise HeartbeatsTaken from error
            raise
        except TaskConflict as error:
            raise OwnershipLost(str(error)) from error
        self.state = state

    def _now_ms(self) -> int:
        return int(self._context.clock.monotonic() * 1000)


def _split_of(published: Iterable[ReplicationTask]) -> Split:
    return {task.spec.index: TopicPartitions.unpack(task.spec.partitions) for task in published}


def _others_wrote(published: Iterable[ReplicationTask], split: SplitState) -> list[int]:
    """Tasks that are not as this connector wrote them: edited by hand, deleted, made."""
    there = _split_of(published)
    return sorted(
        index
        for index in there.keys() | split.tasks.keys()
        if there.get(index) != split.tasks.get(index)
    )
