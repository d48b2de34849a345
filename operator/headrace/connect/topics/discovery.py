"""Topics that a flow copies, and the topics that it creates on the target."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from headrace.api import RackPartitions, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.logs import get_logger
from headrace.replication import AS_GIVEN

log = get_logger(__name__)

_LARGEST_BYTES = 104_857_600
"""``max.message.bytes`` of a dead-letter topic. Brokers accept no larger request by default, so a
record that is too large for a copy still fits into the dead-letter topic."""


def prepare_dead_letter_topic(context: FlowContext, on_target: Collection[str]) -> str:
    """Create the dead-letter topic if it is missing, with one partition as in Connect.

    Return a message if that fails, otherwise an empty string.
    """
    topic = context.spec.on_record_error.dead_letter_topic
    if topic is None or topic in on_target:
        return ""
    config = {"max.message.bytes": str(_LARGEST_BYTES)}
    replicas = context.spec.target.replication_factor or -1
    try:
        if context.target.create_topic(topic, 1, replicas, config):
            log.info("dead-letter topic ready", flow=context.name, topic=topic)
    except HeadraceError as error:
        return (
            f"{error}. Create spec.onRecordError.deadLetterTopic yourself, with a "
            "larger max.message.bytes than the copied topics have: refused records wait for it"
        )
    return ""


@dataclass
class DiscoveryResult:
    """Result of one discovery on both clusters."""

    on_source: Mapping[str, int]
    """Number of partitions of each topic to replicate."""
    partitions: set[TopicPartition] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    """Messages about topics that are not replicated completely, by source topic."""
    made: set[str] = field(default_factory=set)
    """Source topics whose copies were created in this discovery."""
    there: Mapping[str, int] = field(default_factory=dict)
    """Number of partitions of every topic of the source."""
    is_new: bool = True
    """Whether the result was not yet used to find deleted topics."""


def prepare_target(
    context: FlowContext, on_source: Mapping[str, int], log: FilteringBoundLogger
) -> DiscoveryResult:
    """Create topics and partitions that the target lacks.

    A topic that cannot be created or extended is added to ``problems``.
    """
    on_target = context.target.topics()
    found = DiscoveryResult(on_source)
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
    context: FlowContext, log: FilteringBoundLogger, topic: str, existing: int, desired: int
) -> None:
    if existing:
        context.target.add_partitions(topic, desired)
    else:
        factor = context.spec.target.replication_factor or -1
        config = AS_GIVEN if context.preserved else None
        if not context.target.create_topic(topic, desired, factor, config=config):
            raise Retriable(f"topic {topic} was created by another process: trying again")
    log.info("target topic ready", topic=topic, partitions=desired, before=existing)


_READ_AGAIN_S = 300.0
"""Interval in seconds at which racks are read again. Replicas are rarely reassigned. Kafka's
clients use the same interval (``metadata.max.age.ms``)."""


class SourceRacks:
    """Racks of the source's replicas.

    They are read only if this driver knows its own rack, because they are not used otherwise.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._partitions: Set[TopicPartition] = frozenset()
        self._again_s = 0.0
        self.known: tuple[RackPartitions, ...] = ()

    def poll(self, partitions: Set[TopicPartition]) -> bool:
        """Read the racks if that is due; return whether they have changed."""
        now_s = self._context.clock.monotonic()
        if not self._context.driver.rack or (
            partitions == self._partitions and now_s < self._again_s
        ):
            return False
        before, topics = self.known, {at.topic for at in partitions}
        self.known = pack(
            {
                at: racks
                for at, racks in self._context.source.racks(topics).items()
                if at in partitions
            }
        )
        self._partitions, self._again_s = frozenset(partitions), now_s + _READ_AGAIN_S
        return self.known != before


def pack(racks: Mapping[TopicPartition, Set[str]]) -> tuple[RackPartitions, ...]:
    """Return the partitions of each rack, sorted by rack."""
    found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for at, of_one in racks.items():
        for rack in of_one:
            found[rack].append(at)
    return tuple(RackPartitions.pack(rack, found[rack]) for rack in sorted(found))
