"""Everything that uses Kafka clients. The only importer of ``confluent_kafka``.

``make_consumer`` and ``make_producer`` create clients whose settings protect against loss and
duplication. ``Admin`` reads and changes topics, groups and offsets. ``errors.translate`` turns
librdkafka's errors into headrace's errors, whose messages say what failed and what to do.
``journal`` reads and writes the topic in which mirror tests store their progress.
"""

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)

from headrace.kafka.admin import SHARE, ActiveProducer, Admin, Position, ensure_topic
from headrace.kafka.admin_requests import (
    COMPARED_TIMEOUT_S,
    AdminTimings,
    ReloadingClient,
    Renewal,
)
from headrace.kafka.clients import (
    assign,
    check_settings,
    client_config,
    make_consumer,
    make_producer,
    partition_of,
    unassign,
)
from headrace.kafka.compacted import CompactedTopic
from headrace.kafka.errors import (
    AccessDenied,
    GroupActive,
    SecretMissing,
    is_about_group,
    translate,
    translated,
)
from headrace.kafka.patience import patiently
from headrace.kafka.permissions import AclAdmin, Operation, Replicas, RightsAdmin, TopicRights
from headrace.kafka.record_producer import RecordProducer
from headrace.kafka.schema_registry import SchemaRegistry
from headrace.kafka.security import (
    MECHANISMS,
    Credentials,
    principal_of,
    protocol,
    read_credentials,
)
from headrace.kafka.throttle import SMALL_FETCH_BYTES, Throttle, Throttled
from headrace.kafka.topic_admin import NO_TOPIC_ID, Topic, TopicConfig, replaced
from headrace.kafka.wire import BrokerDisk, Committed, NoShareGroups

__all__ = [
    "COMPARED_TIMEOUT_S",
    "MECHANISMS",
    "NO_TOPIC_ID",
    "SHARE",
    "SMALL_FETCH_BYTES",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "AccessDenied",
    "AclAdmin",
    "ActiveProducer",
    "Admin",
    "AdminTimings",
    "BrokerDisk",
    "Committed",
    "CompactedTopic",
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
    "RecordProducer",
    "ReloadingClient",
    "Renewal",
    "Replicas",
    "RightsAdmin",
    "SchemaRegistry",
    "SecretMissing",
    "Throttle",
    "Throttled",
    "Topic",
    "TopicConfig",
    "TopicRights",
    "assign",
    "check_settings",
    "client_config",
    "ensure_topic",
    "is_about_group",
    "make_consumer",
    "make_producer",
    "partition_of",
    "patiently",
    "principal_of",
    "protocol",
    "read_credentials",
    "replaced",
    "translate",
    "translated",
    "unassign",
]
