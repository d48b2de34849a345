"""Client of the Kafka protocol, for requests that librdkafka does not support.

Replication copies record batches unchanged, fences other writers with producer epochs, and reads
the ends of logs from the partition leaders.

One thread runs an ``EventLoop``, which all clusters of a process share. A ``ClusterClient``
connects to the brokers of one cluster. Operations that need several requests are coroutines. Run
one with ``loop.wait(start(coroutine), timeout_s)``, or without waiting with
``start(coroutine).then(...)``.
"""

from kio.schema.describe_producers.v0.response import ProducerState

from headrace.kafka.wire.batches import (
    HEADER_BYTES,
    Batch,
    aborts,
    read_batch,
    split_batches,
    stored_bytes,
)
from headrace.kafka.wire.cluster import ClusterClient, ClusterMetadata, led_by
from headrace.kafka.wire.configs import Settings, broker_settings, topic_settings
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.errors import (
    ConnectionLost,
    CorruptBatch,
    ForeignBroker,
    Garbled,
    NoShareGroups,
    RefusedForGood,
    RequestRefused,
    Unanswered,
    UnreadableBatch,
    UnsupportedBroker,
    refusal,
)
from headrace.kafka.wire.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetched,
    FetchOutcome,
    FetchPosition,
    FetchResponse,
    FetchSession,
    Session,
    fetch_call,
    fetch_outcome,
)
from headrace.kafka.wire.frames import Buffers
from headrace.kafka.wire.groups import (
    Committed,
    committed_offsets,
    list_groups,
    set_committed_offsets,
    set_share_starts,
    share_starts,
    used_share_groups,
)
from headrace.kafka.wire.handshake import ConnectionSettings
from headrace.kafka.wire.log_dirs import BrokerDisk, broker_disks
from headrace.kafka.wire.loop import EventLoop, Reply, start
from headrace.kafka.wire.offsets import (
    EARLIEST,
    LATEST,
    EpochEnd,
    delete_records,
    describe_producers,
    epoch_ends,
    list_offsets,
    log_ends,
)
from headrace.kafka.wire.permissions import (
    answer_to_acls,
    may_use_transactional_id,
    unreadable,
    unwritable,
)
from headrace.kafka.wire.produce import Answer, Produced, ProduceResult, produce_call
from headrace.kafka.wire.protocol import Buffer
from headrace.kafka.wire.records import (
    BatchWriter,
    Decoded,
    StoredRecord,
    decoded,
    encoded,
    stored_records,
    with_headers,
)
from headrace.kafka.wire.routing import Answers
from headrace.kafka.wire.scan import (
    BatchVerdict,
    Gate,
    Scanned,
    Scanner,
    Stop,
    batch_at,
    first_rows,
    refuse_corrupt,
)
from headrace.kafka.wire.stamp import (
    MAX_SEQUENCE,
    Helper,
    Joined,
    Stamped,
    join_helper,
    joined,
    joined_bytes,
    sequence_after,
    stamp,
    stamped,
)
from headrace.kafka.wire.topics import DescribedTopic, delete_topics, describe_topics
from headrace.kafka.wire.transactions import (
    ProducerIdentity,
    Transactions,
    idempotent_producer,
    transactional_ids,
)

__all__ = [
    "EARLIEST",
    "HEADER_BYTES",
    "LATEST",
    "MAX_SEQUENCE",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Answer",
    "Answers",
    "Batch",
    "BatchVerdict",
    "BatchWriter",
    "BrokerDisk",
    "Buffer",
    "Buffers",
    "ClusterClient",
    "ClusterMetadata",
    "Committed",
    "Connection",
    "ConnectionLost",
    "ConnectionSettings",
    "CorruptBatch",
    "Decoded",
    "DescribedTopic",
    "EpochEnd",
    "EventLoop",
    "FetchOutcome",
    "FetchPosition",
    "FetchResponse",
    "FetchSession",
    "Fetched",
    "ForeignBroker",
    "Garbled",
    "Gate",
    "Helper",
    "Joined",
    "NoShareGroups",
    "ProduceResult",
    "Produced",
    "ProducerIdentity",
    "ProducerState",
    "RefusedForGood",
    "Reply",
    "RequestRefused",
    "Scanned",
    "Scanner",
    "Session",
    "Settings",
    "Stamped",
    "Stop",
    "StoredRecord",
    "Transactions",
    "Unanswered",
    "UnreadableBatch",
    "UnsupportedBroker",
    "aborts",
    "answer_to_acls",
    "batch_at",
    "broker_disks",
    "broker_settings",
    "committed_offsets",
    "decoded",
    "delete_records",
    "delete_topics",
    "describe_producers",
    "describe_topics",
    "encoded",
    "epoch_ends",
    "fetch_call",
    "fetch_outcome",
    "first_rows",
    "idempotent_producer",
    "join_helper",
    "joined",
    "joined_bytes",
    "led_by",
    "list_groups",
    "list_offsets",
    "log_ends",
    "may_use_transactional_id",
    "produce_call",
    "read_batch",
    "refusal",
    "refuse_corrupt",
    "sequence_after",
    "set_committed_offsets",
    "set_share_starts",
    "share_starts",
    "split_batches",
    "stamp",
    "stamped",
    "start",
    "stored_bytes",
    "stored_records",
    "topic_settings",
    "transactional_ids",
    "unreadable",
    "unwritable",
    "used_share_groups",
    "with_headers",
]
