"""The source connector: watches the source's topics and splits them into source tasks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.api import Condition, ConditionStatus, ConditionType, Reason, TaskType
from headrace.api.partitions import TopicPartition, TopicPartitions
from headrace.connect.herder import Conflict, TargetTaken
from headrace.connect.hold import Lost
from headrace.connect.unit import Unit
from headrace.errors import Fatal, InvalidSpec, Retriable
from headrace.kafka import NotLetIn
from headrace.replication import split
from headrace.replication.policies import HEARTBEATS
from headrace.replication.splitting import Split


@dataclass
class _Look:
    """One look at both clusters."""

    partitions: set[TopicPartition] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    """Sentences, by topic."""


class SourceConnector(Unit):
    """Every ``discovery.topicsSeconds``: new topics and partitions, made on the target first."""

    _split: Split | None = None
    _published: Split | None = None

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
                self._say(ConditionStatus.FALSE, Reason.SAME_CLUSTER, str(error))
                raise error
            self.context.progress.start()
        if self._split is None:
            # An earlier connector's split stays as it is: nothing moves because this one is new.
            published = self.herder.published(self.hold.task, TaskType.SOURCE_TASK)
            self._split = {index: TopicPartitions.unpack(held) for index, held in published.items()}

    def turn(self) -> float:
        """One look."""
        with self._asking(Reason.SOURCE_UNREACHABLE):
            on_source = {
                topic: partitions
                for topic, partitions in self.context.source.topics().items()
                if self.context.topics.matches(topic)
            }
        with self._asking(Reason.TARGET_UNREACHABLE):
            look = self._prepare_target(on_source)
        self._publish(look)
        self._say_how_it_stands(on_source, look)
        return float(self.context.spec.discovery.topics_seconds)

    def _prepare_target(self, on_source: Mapping[str, int]) -> _Look:
        """Make what is missing on the target; what cannot be made is a problem, not replicated."""
        on_target = self.context.target.topics()
        look = _Look()
        for topic, wanted in sorted(on_source.items()):
            target_topic = self.context.policy.target_topic(topic)
            there = on_target.get(target_topic, 0)
            if there < wanted:
                try:
                    self._grow(target_topic, there, wanted)
                except Retriable as error:
                    look.problems[topic] = str(error)
                except Fatal as error:
                    look.problems[topic] = (
                        f"{error}. Topic {topic} has {wanted} partitions on the source, "
                        f"{target_topic} has {there} on the target: those from {there} on are not "
                        "replicated until the target has them"
                    )
                else:
                    there = wanted
            look.partitions |= {TopicPartition(topic, n) for n in range(min(there, wanted))}
        return look

    def _grow(self, topic: str, there: int, wanted: int) -> None:
        if there:
            self.context.target.add_partitions(topic, wanted)
        else:
            factor = self.context.spec.target.replication_factor
            if not self.context.target.create_topic(topic, wanted, factor):
                raise Retriable(f"topic {topic} was made by somebody else meanwhile: looking again")
        self.log.info("target topic ready", topic=topic, partitions=wanted, before=there)

    def _publish(self, look: _Look) -> None:
        self._split = split(look.partitions, self._split or {}, self.context.spec.tasks.max)
        if self._split == self._published:
            return
        topics = {self.context.policy.target_topic(at.topic) for at in look.partitions}
        try:
            self.herder.publish(
                self.hold.task,
                TaskType.SOURCE_TASK,
                {index: TopicPartitions.pack(held) for index, held in self._split.items()},
                {self.context.target_cluster_id: sorted(topics)},
            )
        except TargetTaken as error:
            self._say(ConditionStatus.FALSE, Reason.TARGET_TOPIC_TAKEN, str(error))
            raise
        except Conflict as error:
            raise Lost(str(error)) from error
        self._published = self._split
        self.log.info("split", partitions=len(look.partitions), tasks=len(self._split))

    def _say_how_it_stands(self, on_source: Mapping[str, int], look: _Look) -> None:
        unmatched = self.context.topics.unmatched(list(on_source))
        if look.problems:
            self._say(
                ConditionStatus.FALSE,
                Reason.TARGET_PARTITIONS_TOO_FEW,
                "; ".join(look.problems.values())[:4096],
            )
        elif unmatched:
            self._say(
                ConditionStatus.TRUE,
                Reason.NO_TOPIC_MATCHES,
                f"no topic of {self.context.spec.source.alias} matches {', '.join(unmatched)} "
                "in spec.topics.include (whole names are matched, exclude wins); "
                "one that is made later is found",
            )
        else:
            topics = len(on_source.keys() - {HEARTBEATS})
            self._say(ConditionStatus.TRUE, Reason.RUNNING, f"replicates {topics} topics")

    @contextmanager
    def _asking(self, unreachable: Reason) -> Iterator[None]:
        try:
            yield
        except Retriable as error:
            reason = error.reason if isinstance(error, NotLetIn) else unreachable
            self._say(ConditionStatus.FALSE, reason, str(error))
            raise

    def _say(self, ready: ConditionStatus, reason: Reason, message: str) -> None:
        condition = Condition(
            type=ConditionType.READY, status=ready, reason=reason, message=message
        )
        generation = self.hold.task.metadata.generation
        self.observe(conditions=(condition,), observed_generation=generation)
