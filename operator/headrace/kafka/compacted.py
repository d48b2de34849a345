"""Compacted topic with one partition, whose records change together or not at all."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka.admin import Admin, Position
from headrace.kafka.clients import assign, make_consumer, make_producer
from headrace.kafka.errors import translate
from headrace.kafka.journal import ends_partition, is_record, wait_for_topics
from headrace.kafka.patience import patiently
from headrace.kafka.permissions import Operation, RightsAdmin

_CONFIG = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(16 << 20),
}
_IDLE_TIMEOUT_S = 60.0
"""Time limit in seconds for the next record. Three leader elections of 10 s fit into it."""
_TRANSACTION_S = 60.0
"""Time limit of a transaction: the default of brokers. A few records take milliseconds."""
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}

Records = Mapping[bytes, bytes]


class CompactedTopic:
    """Reads and replaces the latest records of a compacted topic.

    ``replace`` is atomic among all processes that use the same transactional id.
    """

    def __init__(self, cluster: ClusterAccess, name: str, transactional_id: str) -> None:
        self._cluster, self._name, self._transactional_id = cluster, name, transactional_id

    def prepare(self) -> None:
        """Create the topic if it does not exist.

        Raises:
            GaveUp: The principal lacks a permission that ``replace`` requires.
            HeadraceError: The topic cannot be created.
        """
        admin = RightsAdmin(self._cluster)
        if self._name not in patiently(admin.topics):
            patiently(lambda: admin.create_topic(self._name, 1, config=_CONFIG))
            wait_for_topics(Admin(self._cluster), {self._name})
        rights = patiently(lambda: admin.rights_on_existing([self._name]))[self._name]
        lacking = [str(one) for one in (Operation.READ, Operation.WRITE) if one not in rights]
        what = f"topic {self._name}"
        if not lacking and not admin.may_use_transactional_id(self._transactional_id):
            lacking, what = [str(Operation.WRITE)], f"transactional id {self._transactional_id}"
        if lacking:
            raise GaveUp(
                f"the user of {self._cluster.alias} may not {' or '.join(lacking)} {what}: allow it"
            )

    def read(self) -> dict[bytes, bytes]:
        """Return the latest committed record of each key.

        Raise ``GaveUp`` if no record arrives for a minute.
        """
        at = TopicPartition(self._name, 0)
        admin = Admin(self._cluster)
        begin = patiently(lambda: admin.offsets([at], Position.EARLIEST))
        found: dict[bytes, bytes] = {}
        tried = f"read {self._name} of {self._cluster.alias}"
        with closing(make_consumer(self._cluster)) as consumer:
            assign(consumer, begin.items())
            deadline_s = time.monotonic() + _IDLE_TIMEOUT_S
            while time.monotonic() < deadline_s:
                if (message := consumer.poll(0.5)) is None:
                    continue
                if is_record(message, tried):
                    found[message.key() or b""] = message.value() or b""
                    deadline_s = time.monotonic() + _IDLE_TIMEOUT_S
                elif ends_partition(message):
                    return found
        raise GaveUp(f"could not {tried}: nothing arrived for {_IDLE_TIMEOUT_S:.0f} s")

    def replace(self, is_current: Callable[[Records], bool], records: Records) -> bool:
        """Write records in one transaction if ``is_current`` accepts the latest ones.

        Return False if ``is_current`` rejects them, or if another process with the same
        transactional id began to write.
        """
        tried = f"write to {self._name} of {self._cluster.alias}"
        timeout_ms = round(_TRANSACTION_S * 1000)
        settings = {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "compression.type": "gzip",
        }
        producer = make_producer(self._cluster, settings)
        try:
            # End the transaction of any earlier process, so that ``read`` returns the last state.
            producer.init_transactions(_TRANSACTION_S)
            if not is_current(self.read()):
                return False
            producer.begin_transaction()
            for key, value in records.items():
                producer.produce(self._name, value, key, partition=0)
                producer.poll(0)
            producer.commit_transaction(_TRANSACTION_S)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                return False
            raise translate(error.args[0], tried) from error
        return True
