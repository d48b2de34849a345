"""The Kafka client: the only room that imports ``confluent_kafka``.

Clients come from ``make_consumer`` and ``make_producer`` with the settings that integrity needs;
everything about topics and offsets goes through ``Admin``; ``errors.translate`` turns the client's
errors into ours, with sentences.
"""

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from headrace.kafka.admin import Admin, Position, Topic
from headrace.kafka.clients import (
    assign,
    client_config,
    fetched_end,
    make_consumer,
    make_producer,
    truncated,
)
from headrace.kafka.errors import translate

__all__ = [
    "Admin",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Position",
    "Producer",
    "Topic",
    "assign",
    "client_config",
    "fetched_end",
    "make_consumer",
    "make_producer",
    "translate",
    "truncated",
]
