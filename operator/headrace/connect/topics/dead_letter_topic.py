"""The topic of ``spec.onRecordError.deadLetterTopic``, which is created when it is absent."""

from collections.abc import Collection

from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.logs import get_logger

log = get_logger(__name__)

_LARGEST_BYTES = 104_857_600
"""Brokers accept no larger request by default: what is too large for a copy is not for this."""


def prepare_dead_letter_topic(context: FlowContext, on_target: Collection[str]) -> str:
    """Make the topic if it is absent, with one partition as Connect's; else a sentence why not."""
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
            "max.message.bytes above that "
            "of the topics that are copied: refused records wait for it"
        )
    return ""
