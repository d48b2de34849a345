"""The only importer of ``confluent_kafka``.

Clients come from ``make_consumer`` and ``make_producer`` with the settings that integrity needs;
everything about topics and offsets goes through ``Admin``; ``errors.translate`` turns the client's
errors into ours, with sentences. ``journal`` is a topic of mirror tests.
"""

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from headrace.kafka.admin import Admin, Committed, Position, Topic, TopicConfig
from headrace.kafka.clients import (
    assign,
    assign_more,
    check_settings,
    client_config,
    diverged_at,
    fetched_end,
    make_consumer,
    make_producer,
    unassign,
)
from headrace.kafka.credentials import Credentials, read_credentials
from headrace.kafka.errors import (
    AccessDenied,
    GroupActive,
    SecretMissing,
    concerns_record,
    translate,
    translated,
    words,
)
from headrace.kafka.internal_topic import ensure_topic
from headrace.kafka.renewal import Renewal, Renewed
from headrace.kafka.security import MECHANISMS, protocol

__all__ = [
    "MECHANISMS",
    "AccessDenied",
    "Admin",
    "Committed",
    "Consumer",
    "Credentials",
    "GroupActive",
    "KafkaError",
    "KafkaException",
    "Message",
    "Position",
    "Producer",
    "Renewal",
    "Renewed",
    "SecretMissing",
    "Topic",
    "TopicConfig",
    "assign",
    "assign_more",
    "check_settings",
    "client_config",
    "concerns_record",
    "diverged_at",
    "ensure_topic",
    "fetched_end",
    "make_consumer",
    "make_producer",
    "protocol",
    "read_credentials",
    "translate",
    "translated",
    "unassign",
    "words",
]
