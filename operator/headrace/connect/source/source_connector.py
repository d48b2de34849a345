"""Source connector: finds the source's topics and splits their partitions into tasks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from structlog.typing import FilteringBoundLogger

from headrace.api import (
    HEARTBEATS,
    MAX_MESSAGE_LENGTH,
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationTask,
    TaskType,
    TopicPartition,
    TopicPartitions,
    find_condition,
)
from headrace.connect.preflight.preflight import Requirements
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.herder import (
    EpochAltered,
    Herder,
    TargetTaken,
    TaskConflict,
)
from headrace.connect.runtime.ownership import Ownership, OwnershipLost
from headrace.connect.runtime.threaded_unit import ThreadedUnit, succeeds
from headrace.connect.takeover.first_start import remember_first_start
from headrace.connect.topics.discovery import DiscoveryResult, SourceRacks, prepare_target
from headrace.connect.topics.flow_rings import RingGuard
from headrace.connect.topics.losses import sentence, shown_losses
from headrace.connect.topics.topic_deletion import DeletedTopics, TopicDeleter
from headrace.connect.topics.topic_sync import AclSync, TopicConfigSync
from headrace.errors import Fatal, HeadraceError, InvalidSpec, Retriable
from headrace.kafka import AccessDenied, Throttled
from headrace.replication.splitting import (
    Growth,
    Split,
    SplitConfig,
    SplitState,
    TaskReport,
    observe,
    resplit,
)

_NOTHING: frozenset[TopicPartition] = frozenset()


class HeartbeatsTaken(Exception):
    """Another flow copies this source's heartbeats to this target."""


class TaskSplit:
    """Split of partitions into a connector's tasks. Call it in the connector's thread."""

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
        """Move the tasks one step towards the best split; return True if no change is pending.

        ``weights`` contains the records a second of each partition to copy; None if unknown.
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
            self._log.warning("restored tasks that another client had changed", tasks=changed)
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
        """Publish the split of an earlier connector unchanged, and return it."""
        state = SplitState(_split_of(self._tasks()), resumed_ms=self._now_ms())
        # After this write, the herder rejects writes of an earlier connector.
        self._publish(state)
        return state

    def _tasks(self) -> list[ReplicationTask]:
        return self._herder.list_tasks(self._ownership.task, TaskType.SOURCE_TASK)

    def _publish(self, state: SplitState) -> None:
        self.state = None  # unknown until the herder has responded
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
    """Return the tasks that were edited, deleted or created by another writer."""
    there = _split_of(published)
    return sorted(
        index
        for index in there.keys() | split.tasks.keys()
        if there.get(index) != split.tasks.get(index)
    )


_HEARTBEATS_LEFT_S = 60.0
"""Time in seconds for which another flow's copy of the heartbeats is accepted, before it is checked
whether that flow still exists."""
_ASK_AGAIN_S = 0.2
"""Interval in seconds while a task has a change to acknowledge. Only the herder is polled, no
broker."""


class SourceConnector(ThreadedUnit):
    """Connector that finds new topics and partitions every ``discovery.topicsSeconds``.

    New topics and partitions are first created on the target. The connector measures how fast each
    partition grows, and splits the partitions into source tasks accordingly.
    """

    _found: DiscoveryResult | None = None
    _next_discovery_s = _heartbeats_from_s = 0.0
    _growth: Mapping[TopicPartition, Growth] = MappingProxyType({})
    _lost: tuple[Condition, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._split = TaskSplit(self.context, self.ownership, self.herder, self.log)
        self._configs = TopicConfigSync(self.context)
        self._acls = AclSync(self.context)
        self._deleted = DeletedTopics(self.context)
        self._deletion = TopicDeleter(self.context)
        self._racks = SourceRacks(self.context)
        self._rings = RingGuard(self.context)
        self._requirements = Requirements(self.context)
        self._take_over()

    def _take_over(self) -> None:
        """Report again the losses and ``racks`` that an earlier instance reported in the status.

        They remain there until this instance has determined its own.
        """
        before = self.ownership.task.status
        lost = find_condition(before.conditions, ConditionType.DATA_LOSS_DETECTED)
        self._lost = self.beside_ready = (lost,) if lost else ()
        racks = before.racks if self.context.driver.rack else ()
        self.observe(losses=before.losses, racks=racks, conditions=self.beside_ready)

    def restore(self) -> None:
        """Check the clusters, create the progress topic, and store the topics of the first start.

        Raises:
            InvalidSpec: Source and target are the same cluster.
        """
        with self._asking(Reason.SOURCE_UNREACHABLE):
            source_id = self.context.source_cluster_id
        with self._asking(Reason.TARGET_UNREACHABLE):
            target_id = self.context.target_cluster_id
            if source_id == target_id:
                error = InvalidSpec(
                    f"source {self.context.source.name} and target {self.context.target.name} "
                    f"are the same cluster ({source_id}): a flow needs two; correct one of "
                    "spec.source.bootstrapServers and spec.target.bootstrapServers"
                )
                self.report_ready(ConditionStatus.FALSE, Reason.SAME_CLUSTER, str(error))
                raise error
            try:
                self.context.progress.start()
                remember_first_start(self.context)
            except Fatal:  # the check of requirements names the missing permission
                if self._check_requirements():
                    self.observe(conditions=self.beside_ready)
                raise

    def has_remedy(self, error: HeadraceError) -> Callable[[], bool] | None:
        """Return a function that repeats a rejected publication, otherwise None.

        After ``TargetTaken``, it succeeds as soon as no other flow writes the topics.
        """
        refused = isinstance(error, TargetTaken | EpochAltered)
        return partial(succeeds, self._publish_again) if refused else None

    def _publish_again(self) -> None:
        if self._found is not None:
            with suppress(HeartbeatsTaken):  # the next instance does not copy them
                self._split.step(self._weights(self._found.partitions))

    def leave(self) -> None:
        self._rings.stop()

    def close(self) -> None:
        """Close the readers of internal topics."""
        self._acls.close()
        self._deletion.close()
        self._rings.close()

    def run_once(self) -> float:
        """Discover topics if that is due, and publish the resulting tasks."""
        now_s = self.clock.monotonic()
        if self._found is None or now_s >= self._next_discovery_s or self._rings_changed():
            self._found = self._discover()
            self._next_discovery_s = now_s + self.context.spec.discovery.topics_seconds
        # Settings are synchronized before tasks of a new topic are published, so that its first
        # records are written with them.
        topics = {at.topic for at in self._found.partitions}
        synchronized_s = min(self._configs.poll(topics), self._acls.poll(topics))
        try:
            settled = self._split.step(self._weights(self._found.partitions))
        except HeartbeatsTaken:
            # All flows of a source would copy the heartbeats, and one copy is sufficient.
            self._heartbeats_from_s, self._found = now_s + _HEARTBEATS_LEFT_S, None
            return 0.0
        except TargetTaken as error:
            self.report_ready(ConditionStatus.FALSE, Reason.TARGET_TOPIC_TAKEN, str(error))
            raise
        self._find_deleted(self._found)
        self._check_requirements()
        self._report_condition(self._found)
        due_s = min(self._next_discovery_s, self._rings.next_s)
        rest_s = min(synchronized_s, max(0.0, due_s - self.clock.monotonic()))
        return rest_s if settled else min(rest_s, _ASK_AGAIN_S)

    def _check_requirements(self) -> bool:
        """Check the requirements if that is due; return whether they were checked."""
        checked = self._requirements.poll()
        self.beside_ready = (
            *self._lost,
            *self._configs.conditions,
            *self._requirements.conditions,
            *self._deletion.conditions,
        )
        return checked

    def _discover(self) -> DiscoveryResult:
        with self._asking(Reason.SOURCE_UNREACHABLE):
            there = self.context.source.topics()
            on_source = {
                topic: partitions
                for topic, partitions in there.items()
                if self.context.topics.matches(topic)
                and (topic != HEARTBEATS or self.clock.monotonic() >= self._heartbeats_from_s)
            }
        self._check_rings(there, on_source)
        left_out = self._rings.refused.keys() | self._rings.held
        on_source = {topic: count for topic, count in on_source.items() if topic not in left_out}
        with self._asking(Reason.TARGET_UNREACHABLE):
            found = prepare_target(self.context, on_source, self.log)
        found.there = there
        self._deletion.made(found.made)
        with self._asking(Reason.SOURCE_UNREACHABLE):
            self._measure(found.partitions)
            moved = self._racks.poll(found.partitions)
        if moved:
            self.observe(racks=self._racks.known)
            self.ownership.report(self.status)  # the racks determine the placement of new tasks
        return found

    def _check_rings(self, source_topics: Collection[str], topics: Collection[str]) -> None:
        """Find topics to refuse. Call it before new topics are published."""
        is_new = True
        for _ in range(2):
            if is_new:
                with self._asking(Reason.SOURCE_UNREACHABLE):
                    self._rings.read(source_topics)
                with self._asking(Reason.TARGET_UNREACHABLE):
                    is_new = self._rings.store(topics)

    def _rings_changed(self) -> bool:
        with self._asking(Reason.SOURCE_UNREACHABLE):
            return self._rings.poll()

    def _measure(self, partitions: Set[TopicPartition]) -> None:
        ends = self.context.source.known_ends(partitions)
        self._deleted.saw(ends)
        now_s = self.clock.monotonic()
        known = {at: growth for at, growth in self._growth.items() if at in partitions}
        self._growth = known | {at: observe(known.get(at), end, now_s) for at, end in ends.items()}

    def _weights(self, partitions: Set[TopicPartition]) -> Mapping[TopicPartition, float | None]:
        growth = self._growth
        return {at: growth[at].records_per_s if at in growth else None for at in partitions}

    def _find_deleted(self, found: DiscoveryResult) -> None:
        """Find partitions whose topics were deleted, and delete their copies if the spec says so.

        Partitions that were leaving tasks of an earlier connector are unknown until they have left.
        """
        state = self._split.state
        if not found.is_new or state is None or state.resumed_ms is not None:
            return
        found.is_new = False
        held = {at for partitions in state.tasks.values() for at in partitions}
        with self._asking(Reason.TARGET_UNREACHABLE):  # the target stores progress
            self._deleted.find(found.there, held | state.leaving.keys())
        self._deletion.poll(found.there, {at.topic for at in held | state.leaving.keys()})
        say = partial(sentence, self.context)
        shown = shown_losses(self._deleted.losses, self.clock.time(), say)
        self._lost = shown.conditions
        self.observe(losses=shown.listed)

    def _report_condition(self, found: DiscoveryResult) -> None:
        on_source = found.on_source
        unmatched = self.context.topics.unmatched([*on_source, *self._rings.held])
        unresolved = {at: one for at, one in self._deleted.losses.items() if one.unresolved}
        if unresolved:
            lost = "; ".join(sentence(self.context, at, one) for at, one in unresolved.items())
            self.report_ready(ConditionStatus.FALSE, Reason.DATA_LOST, lost[:MAX_MESSAGE_LENGTH])
        elif refused := self._rings.refused:
            self.report_ready(
                ConditionStatus.FALSE,
                Reason.REPLICATION_LOOP,
                "; ".join(refused.values())[:MAX_MESSAGE_LENGTH],
            )
        elif found.problems:
            self.report_ready(
                ConditionStatus.FALSE,
                Reason.TARGET_PARTITIONS_TOO_FEW,
                "; ".join(found.problems.values())[:MAX_MESSAGE_LENGTH],
            )
        elif unmatched:
            self.report_ready(
                ConditionStatus.TRUE,
                Reason.NO_TOPIC_MATCHES,
                f"no topic of {self.context.spec.source.alias} matches {', '.join(unmatched)} "
                "in spec.topics.include (whole names are matched, exclude wins); "
                "one that is made later is found",
            )
        else:
            topics = len(on_source.keys() - {HEARTBEATS})
            message = f"replicates {topics} topics"
            if problems := self._configs.problems:
                others = f" and of {len(problems) - 1} more" if len(problems) > 1 else ""
                message += f"; settings not synchronized: {next(iter(problems.values()))}{others}"
            if self._acls.problem:
                message += f"; ACLs not synchronized: {self._acls.problem}"
            if self._rings.problem:
                message += f"; {self._rings.problem}"
            self.report_ready(ConditionStatus.TRUE, Reason.RUNNING, message[:MAX_MESSAGE_LENGTH])

    @contextmanager
    def _asking(self, unreachable: Reason) -> Iterator[None]:
        try:
            yield
        except Retriable as error:
            reason = error.reason if isinstance(error, AccessDenied | Throttled) else unreachable
            self.report_ready(ConditionStatus.FALSE, reason, str(error))
            raise
