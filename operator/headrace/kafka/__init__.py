"""The only importer of ``confluent_kafka``.

Clients come from ``make_consumer`` and ``make_producer`` with the settings that integrity needs;
everything about topics and offsets goes through ``Admin``; ``errors.translate`` turns the client's
errors into ours, with sentences. ``journal`` is a topic of mirror tests.
"""

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from headrace.kafka.acls import AclAdmin
from headrace.kafka.admin import Admin
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
from headrace.kafka.diagnosis import in_words
from headrace.kafka.errors import (
    AccessDenied,
    GroupActive,
    SecretMissing,
    concerns_record,
    is_about_group,
    translate,
    translated,
    words,
)
from headrace.kafka.internal_topic import ensure_topic
from headrace.kafka.offset_admin import Position
from headrace.kafka.operations import Operation
from headrace.kafka.partitioner import partition_of
from headrace.kafka.principal import principal_of
from headrace.kafka.renewal import Renewal, Renewed
from headrace.kafka.rights import Replicas, RightsAdmin, TopicRights
from headrace.kafka.security import MECHANISMS, protocol
from headrace.kafka.share_group_admin import SHARE
from headrace.kafka.topic_admin import NO_TOPIC_ID, Topic, replaced
from headrace.kafka.topic_config_admin import TopicConfig
from headrace.kafka.wire import Committed, NoShareGroups

__all__ = [
    "MECHANISMS",
    "NO_TOPIC_ID",
    "SHARE",
    "AccessDenied",
    "AclAdmin",
    "Admin",
    "Committed",
    "Consumer",
    "Credentials",
    "GroupActive",
    "KafkaError",
    "KafkaException",
    "Message",
    "NoShareGroups",
    "Operation",
    "Position",
    "Producer",
    "Renewal",
    "Renewed",
    "Replicas",
    "RightsAdmin",
    "SecretMissing",
    "Topic",
    "TopicConfig",
    "TopicRights",
    "assign",
    "assign_more",
    "check_settings",
    "client_config",
    "concerns_record",
    "diverged_at",
    "ensure_topic",
    "fetched_end",
    "in_words",
    "is_about_group",
    "make_consumer",
    "make_producer",
    "partition_of",
    "principal_of",
    "protocol",
    "read_credentials",
    "replaced",
    "translate",
    "translated",
    "unassign",
    "words",
]
