"""What a flow is to copy, by the topics of both clusters; the target gets those that it lacks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.dead_letter_topic import prepare_dead_letter_topic
from headrace.errors import Fatal, Retriable
from headrace.replication import AS_GIVEN


@dataclass
class Discovery:
    """What one discovery found on both clusters."""

    on_source: Mapping[str, int]
    """Number of partitions of each topic to replicate."""
    partitions: set[TopicPartition] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    """Sentences, by topic."""
    made: set[str] = field(default_factory=set)
    """Those whose copies were made now."""
    there: Mapping[str, int] = field(default_factory=dict)
    """All topics of the source, and their numbers of partitions."""
    is_new: bool = True
    """Whether it was not compared with what is stored."""


def prepare_target(
    context: FlowContext, on_source: Mapping[str, int], log: FilteringBoundLogger
) -> Discovery:
    """Create what the target lacks; a topic that cannot be created or grown is a problem."""
    on_target = context.target.topics()
    found = Discovery(on_source)
    for topic, wanted in sorted(on_source.items()):
        target_topic = context.policy.target_topic(topic)
        if target_topic == context.spec.on_record_error.dead_letter_topic:
            found.problems[topic] = (
                f"{target_topic} is the copy of {topic} and spec.onRecordError.deadLetterTopic: "
                f"{topic} is not replicated until one of them has another name"
            )
            continue
        existing = on_target.get(target_topic, 0)
        if existing < wanted:
            try:
                _grow(context, log, target_topic, existing, wanted)
            except Retriable as error:
                found.problems[topic] = str(error)
            except Fatal as error:
                found.problems[topic] = (
                    f"{error}. Topic {topic} has {wanted} partitions on the source, "
                    f"{target_topic} has {existing} on the target: those from {existing} on "
                    "are not replicated until the target has them"
                )
            else:
                if not existing:
                    found.made.add(topic)
                existing = wanted
        found.partitions |= {TopicPartition(topic, n) for n in range(min(existing, wanted))}
    if why := prepare_dead_letter_topic(context, on_target.keys()):
        found.problems["the dead-letter topic"] = why
    return found


def _grow(
    context: FlowContext, log: FilteringBoundLogger, topic: str, existing: int, wanted: int
) -> None:
    if existing:
        context.target.add_partitions(topic, wanted)
    else:
        factor = context.spec.target.replication_factor or -1
        config = AS_GIVEN if context.preserved else None
        if not context.target.create_topic(topic, wanted, factor, config=config):
            raise Retriable(f"topic {topic} was created by somebody else meanwhile: trying again")
    log.info("target topic ready", topic=topic, partitions=wanted, before=existing)
