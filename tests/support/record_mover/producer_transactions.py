"""The transactions of one producer of librdkafka: one at a time, each over data and progress."""

import time
from collections.abc import Mapping
from threading import Event

from headrace.api import ClusterAccess, TopicPartition
from headrace.datapath import transactions
from headrace.datapath.clients import Clients
from headrace.errors import HeadraceError
from headrace.kafka import (
    KafkaError,
    KafkaException,
    Message,
    Position,
    Producer,
    in_words,
    translate,
    translated,
)
from headrace.logs import get_logger
from headrace.timing import Clock

log = get_logger(__name__)

_FENCE_S = 30.0
_ASK_S = 5.0


class RecordTransactions:
    """A transactional producer. Methods except ``begin`` block; one thread at a time calls them."""

    def __init__(
        self, target: ClusterAccess, transactional_id: str, clients: Clients, clock: Clock
    ) -> None:
        self._target, self._clock = target, clock
        self.id = transactional_id
        self.away: list[str] = []
        """Sentences about brokers."""
        self.producer: Producer = clients.producer(
            target,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": transactions.TRANSACTION_MS,
            },
            on_error=lambda error: self.away.append(in_words(target, error)),
        )
        self._admin = clients.admin(target)
        self.ended = Event()
        """Whether no more requests are to be sent."""

    def fence(self) -> None:
        """Get a higher epoch: once, before all other calls."""
        with translated(f"get a producer epoch of {self.id} on {self._target.name}"):
            self.producer.init_transactions(_FENCE_S)

    def begin(self) -> None:
        """Begin another transaction, which later records are part of."""
        with translated(f"begin a transaction on {self._target.name}"):
            self.producer.begin_transaction()

    def commit(self, progress: Mapping[TopicPartition, transactions.Records]) -> None:
        producer, tried = self.producer, f"commit a transaction on {self._target.name}"
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        with translated(tried):
            for at, records in progress.items():
                for key, value in records:
                    producer.produce(at.topic, value, key, at.partition, on_delivery=delivered)
        deadline_s = self._clock.monotonic() + transactions.ANSWERED_WITHIN_S
        while True:
            try:
                producer.commit_transaction(_ASK_S)
            except KafkaException as error:
                late = self._clock.monotonic() > deadline_s
                if not error.args[0].retriable() or late or self.ended.wait(transactions.POLL_S):
                    raise as_lost(refused[0] if refused else error.args[0], tried) from error
            else:
                return

    def visible(self, ends: Mapping[TopicPartition, int]) -> None:
        deadline_s = self._clock.monotonic() + transactions.VISIBLE_WITHIN_S
        late = dict(ends)
        while late:
            stable = self._admin.known_ends(late, Position.LAST_STABLE)
            late = transactions.not_visible(late, stable)
            if late and self._clock.monotonic() > deadline_s:
                raise transactions.marker_missing(self._target.name, late)
            if late:
                time.sleep(transactions.POLL_S)

    def abort(self) -> None:
        try:
            self.producer.abort_transaction(transactions.ABORT_S)
        except KafkaException as error:
            log.info("not aborted", transactional_id=self.id, why=error.args[0].str())


def as_lost(error: KafkaError, tried: str) -> HeadraceError:
    failure = translate(error, tried)
    return transactions.lost(failure) if transactions.is_lost(error.name()) else failure
