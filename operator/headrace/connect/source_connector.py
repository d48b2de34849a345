"""The source connector: watches the source's topics and splits them into source tasks."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from headrace.api import (
    HEARTBEATS,
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationTask,
    TaskType,
    TopicPartition,
    TopicPartitions,
    condition,
)
from headrace.connect.acl_sync import AclSync
from headrace.connect.dead_letter_topic import prepare_dead_letter_topic
from headrace.connect.deleted_topics import DeletedTopics
from headrace.connect.herder import TargetTaken, TaskConflict
from headrace.connect.losses import sentence, shown_losses
from headrace.connect.ownership import OwnershipLost
from headrace.connect.requirements import Requirements
from headrace.connect.threaded_unit import ThreadedUnit
from headrace.connect.topic_configs import TopicConfigSync
from headrace.errors import Fatal, InvalidSpec, Retriable
from headrace.kafka import AccessDenied
from headrace.replication.growth import Growth, observe
from headrace.replication.splitting import Split, SplitConfig, SplitState, TaskReport, resplit

_HEARTBEATS_LEFT_S = 60.0
"""So long another flow's copy of the heartbeats is left alone: that flow may be deleted by then."""
_ASK_AGAIN_S = 0.2
"""While a task has a change to acknowledge: only the herder is polled, no broker."""
_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass
class _Discovery:
    """What one discovery found on both clusters."""

    on_source: Mapping[str, int]
    """Number of partitions of each topic to replicate."""
    partitions: set[TopicPartition] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    """Sentences, by topic."""
    there: Collection[str] = ()
    """All topics of the source."""
    is_new: bool = True
    """Whether it was not compared with what is stored."""


class SourceConnector(ThreadedUnit):
    """Every ``discovery.topicsSeconds``: new topics and partitions, made on the target first.

    It measures how fast each partition grows, and splits them over the source tasks by that.
    """

    _state: SplitState | None = None
    """As published; None when that is not known."""
    _found: _Discovery | None = None
    _next_discovery_s = _heartbeats_from_s = 0.0
    _growth: Mapping[TopicPartition, Growth] = MappingProxyType({})
    _lost: tuple[Condition, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._configs = TopicConfigSync(self.context)
        self._acls = AclSync(self.context)
        self._deleted = DeletedTopics(self.context)
        self._requirements = Requirements(self.context)
        self._take_over_losses()

    def _take_over_losses(self) -> None:
        """They are reported until they are looked for again, by any instance."""
        before = self.ownership.task.status
        lost = condition(before.conditions, ConditionType.DATA_LOSS_DETECTED)
        self._lost = self.beside_ready = (lost,) if lost else ()
        self.observe(losses=before.losses, conditions=self.beside_ready)

    def restore(self) -> None:
        """Refuse what cannot work; make the progress topic."""
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
            except Fatal:  # that is one of the things that may be missing
                if self._check_requirements():
                    self.observe(conditions=self.beside_ready)
                raise

    def close(self) -> None:
        """Free the reader of the ACLs that were added."""
        self._acls.close()

    def run_once(self) -> float:
        """Discover when that is due, and act on what was found."""
        now_s = self.clock.monotonic()
        if self._found is None or now_s >= self._next_discovery_s:
            self._found = self._discover()
            self._next_discovery_s = now_s + self.context.spec.discovery.topics_seconds
        # Before tasks of a new topic are published: its first records find its settings.
        topics = {at.topic for at in self._found.partitions}
        synchronized_s = min(self._configs.poll(topics), self._acls.poll(topics))
        try:
            settled = self._split(self._found)
        except _HeartbeatsTaken:
            # Every flow of a source would copy them; one is enough.
            self._heartbeats_from_s, self._found = now_s + _HEARTBEATS_LEFT_S, None
            return 0.0
        self._find_deleted(self._found)
        self._check_requirements()
        self._report_condition(self._found)
        rest_s = min(synchronized_s, max(0.0, self._next_discovery_s - self.clock.monotonic()))
        return rest_s if settled else min(rest_s, _ASK_AGAIN_S)

    def _check_requirements(self) -> bool:
        """Whether it was checked again."""
        checked = self._requirements.poll()
        self.beside_ready = (*self._lost, *self._requirements.conditions)
        return checked

    def _discover(self) -> _Discovery:
        with self._asking(Reason.SOURCE_UNREACHABLE):
            there = self.context.source.topics()
            on_source = {
                topic: partitions
                for topic, partitions in there.items()
                if self.context.topics.matches(topic)
                and (topic != HEARTBEATS or self.clock.monotonic() >= self._heartbeats_from_s)
            }
        with self._asking(Reason.TARGET_UNREACHABLE):
            found = self._prepare_target(on_source)
        found.there = there
        with self._asking(Reason.SOURCE_UNREACHABLE):
            self._measure(found.partitions)
        return found

    def _measure(self, partitions: Set[TopicPartition]) -> None:
        ends = self.context.source.known_ends(partitions)
        self._deleted.saw(ends)
        now_s = self.clock.monotonic()
        known = {at: growth for at, growth in self._growth.items() if at in partitions}
        self._growth = known | {at: observe(known.get(at), end, now_s) for at, end in ends.items()}

    def _prepare_target(self, on_source: Mapping[str, int]) -> _Discovery:
        """Create what the target lacks; a topic that cannot be created or grown is a problem."""
        on_target = self.context.target.topics()
        found = _Discovery(on_source)
        for topic, wanted in sorted(on_source.items()):
            target_topic = self.context.policy.target_topic(topic)
            if target_topic == self.context.spec.dead_letter_topic:
                found.problems[topic] = (
                    f"{target_topic} is the copy of {topic} and spec.deadLetterTopic: {topic} is "
                    "not replicated until one of them has another name"
                )
                continue
            existing = on_target.get(target_topic, 0)
            if existing < wanted:
                try:
                    self._grow(target_topic, existing, wanted)
                except Retriable as error:
                    found.problems[topic] = str(error)
                except Fatal as error:
                    found.problems[topic] = (
                        f"{error}. Topic {topic} has {wanted} partitions on the source, "
                        f"{target_topic} has {existing} on the target: those from {existing} on "
                        "are not replicated until the target has them"
                    )
                else:
                    existing = wanted
            found.partitions |= {TopicPartition(topic, n) for n in range(min(existing, wanted))}
        if why := prepare_dead_letter_topic(self.context, on_target.keys()):
            found.problems["the dead-letter topic"] = why
        return found

    def _grow(self, topic: str, existing: int, wanted: int) -> None:
        if existing:
            self.context.target.add_partitions(topic, wanted)
        else:
            factor = self.context.spec.target.replication_factor or -1
            if not self.context.target.create_topic(topic, wanted, factor):
                raise Retriable(
                    f"topic {topic} was created by somebody else meanwhile: trying again"
                )
        self.log.info("target topic ready", topic=topic, partitions=wanted, before=existing)

    def _split(self, found: _Discovery) -> bool:
        """Move the tasks one step towards the split; whether none has a change to acknowledge."""
        before = self._state or self._take_over()
        published = self._tasks()
        tasks = self.context.spec.tasks
        weights = {
            at: self._growth[at].records_per_s if at in self._growth else None
            for at in found.partitions
        }
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
            self.log.warning("put right what somebody else changed", tasks=changed)
        if changed or after.tasks != before.tasks:
            self._publish(after)
            self.log.info(
                "split",
                partitions=len(found.partitions),
                tasks=len(after.tasks),
                leaving=len(after.leaving),
            )
        owners = {task.spec.index: task.status.driver_name for task in published}
        for at, index in after.taken.items():
            self.log.warning(
                "partition taken from a task that did not release it in time",
                partition=str(at),
                index=index,
                driver=owners.get(index),
            )
        for at, index in after.returned.items():
            self.log.info(
                "partition not moved for balance: its task did not release it in time",
                partition=str(at),
                index=index,
                driver=owners.get(index),
            )
        self._state = after
        return after.settled

    def _take_over(self) -> SplitState:
        """Keep the split of an earlier connector: a new connector moves nothing."""
        state = SplitState(_split_of(self._tasks()), resumed_ms=self._now_ms())
        # Written unchanged: from now on the herder refuses an earlier connector's writes.
        self._publish(state)
        return state

    def _tasks(self) -> list[ReplicationTask]:
        return self.herder.list_tasks(self.ownership.task, TaskType.SOURCE_TASK)

    def _publish(self, state: SplitState) -> None:
        self._state = None  # until the herder has answered, what it has written is not known
        topics = {
            self.context.policy.target_topic(at.topic)
            for held in state.tasks.values()
            for at in held
        }
        try:
            self.herder.put_tasks(
                self.ownership.task,
                TaskType.SOURCE_TASK,
                {index: TopicPartitions.pack(held) for index, held in state.tasks.items()},
                {self.context.target_cluster_id: sorted(topics)},
            )
        except TargetTaken as error:
            if error.topics == {self.context.policy.target_topic(HEARTBEATS)}:
                raise _HeartbeatsTaken from error
            self.report_ready(ConditionStatus.FALSE, Reason.TARGET_TOPIC_TAKEN, str(error))
            raise
        except TaskConflict as error:
            raise OwnershipLost(str(error)) from error
        self._state = state

    def _find_deleted(self, found: _Discovery) -> None:
        """What was leaving the tasks of an earlier connector is not known until it has left."""
        state = self._state
        if not found.is_new or state is None or state.resumed_ms is not None:
            return
        found.is_new = False
        held = {at for partitions in state.tasks.values() for at in partitions}
        with self._asking(Reason.TARGET_UNREACHABLE):  # which has the progress
            self._deleted.find(found.there, held | state.leaving.keys())
        say = partial(sentence, self.context)
        shown = shown_losses(self._deleted.losses, self.clock.time(), say)
        self._lost = shown.conditions
        self.observe(losses=shown.listed)

    def _report_condition(self, found: _Discovery) -> None:
        on_source = found.on_source
        unmatched = self.context.topics.unmatched(list(on_source))
        unresolved = {at: one for at, one in self._deleted.losses.items() if one.unresolved}
        if unresolved:
            lost = "; ".join(sentence(self.context, at, one) for at, one in unresolved.items())
            self.report_ready(ConditionStatus.FALSE, Reason.DATA_LOST, lost[:4096])
        elif found.problems:
            self.report_ready(
                ConditionStatus.FALSE,
                Reason.TARGET_PARTITIONS_TOO_FEW,
                "; ".join(found.problems.values())[:4096],
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
            self.report_ready(ConditionStatus.TRUE, Reason.RUNNING, message[:4096])

    @contextmanager
    def _asking(self, unreachable: Reason) -> Iterator[None]:
        try:
            yield
        except Retriable as error:
            reason = error.reason if isinstance(error, AccessDenied) else unreachable
            self.report_ready(ConditionStatus.FALSE, reason, str(error))
            raise

    def _now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)


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


class _HeartbeatsTaken(Exception):
    """Another flow copies this source's heartbeats to this target."""
