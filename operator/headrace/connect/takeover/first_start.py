"""Topics of the source at the first start of a flow: how they are stored and used."""

from collections.abc import Set

from headrace.api import TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.kafka import NO_TOPIC_ID
from headrace.logs import get_logger
from headrace.replication.first_start import FirstStart, FirstStartKey, Origin, SourceTopic

log = get_logger(__name__)


def remember_first_start(context: FlowContext) -> None:
    """Store the topics of the source, unless they were stored before.

    Call it before tasks are published. Topics that are not stored count as new. These are topics
    that are created later, and topics that the flow has no permission to describe now.

    Raises:
        HeadraceError: A cluster could not be read, or progress could not be stored.
    """
    progress, key = context.progress, _key(context)
    progress.read_to_end()
    if progress.first_start(key) is not None:
        return
    topics = context.source.describe(context.source.topics())
    first = FirstStart.of(
        SourceTopic(name, _id(one.topic_id), one.partitions, context.topics.matches(name))
        for name, one in topics.items()
    )
    # Another driver may have stored its list in the meantime. This driver's list may contain a
    # topic that was created after that.
    progress.read_to_end()
    if progress.first_start(key) is None:
        progress.store_first_start(key, first, context.now_ms)
        log.info("stored the source's topics at the first start", topics=len(topics))


def origins_of(
    context: FlowContext, partitions: Set[TopicPartition]
) -> dict[TopicPartition, Origin]:
    """Return the origin of each partition.

    If the topics at the first start are not stored, all partitions count as selected. That is the
    case for a flow that an earlier version started, until its source connector has started.
    """
    first = context.progress.first_start(_key(context))
    if first is None:
        return dict.fromkeys(partitions, Origin.SELECTED)
    described = context.source.describe({at.topic for at in partitions})
    ids = {name: _id(one.topic_id) for name, one in described.items()}
    return {at: first.origin(at.topic, ids.get(at.topic, ""), at.partition) for at in partitions}


def _key(context: FlowContext) -> FirstStartKey:
    return FirstStartKey(context.name, context.source_cluster_id)


def _id(topic_id: str) -> str:
    return "" if topic_id == NO_TOPIC_ID else topic_id
