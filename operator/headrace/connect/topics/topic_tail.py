"""Reads a partition of an internal topic to its end, again and again."""

from collections.abc import Iterator

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import Retriable
from headrace.kafka import (
    Admin,
    Consumer,
    KafkaError,
    Message,
    Position,
    Renewal,
    assign,
    is_about_group,
    translate,
    translated,
)
from headrace.movers import Clients
from headrace.timing import Clock

_SILENCE_S = 10.0
_BATCH = 1_000


class TopicTail:
    """One thread calls it."""

    def __init__(
        self,
        topic: str,
        cluster: ClusterAccess,
        admin: Admin,
        clients: Clients,
        clock: Clock,
        *,
        partition: int = 0,
        start: int = 0,
    ) -> None:
        """``admin`` is of that cluster; ``start`` is the first offset to be read."""
        self._at = TopicPartition(topic, partition)
        self._cluster, self._admin, self._clients, self._clock = cluster, admin, clients, clock
        self._position = start
        self._consumer: Consumer | None = None
        self._renewal = Renewal()

    def read(self) -> Iterator[Message]:
        """What was written since the last call; all of it the first time.

        Raises ``Retriable`` when a broker does not answer, and ``Fatal`` without the right to read.
        What was taken until then is not read again.
        """
        end = self._admin.offsets([self._at], Position.LATEST)[self._at]
        if end < self._position:
            self.close()
            raise Retriable(
                f"topic {self._at.topic} on {self._admin.name} ends at {end}, and was read to "
                f"{self._position}: it was made again"
            )
        tried = f"read topic {self._at.topic} on {self._admin.name}"
        received_s = self._clock.monotonic()
        while self._position < end:
            with translated(tried):
                messages = self._opened().consume(_BATCH, 0.2)
            for message in messages:
                yield from self._taken(message, tried)
            if messages:
                received_s = self._clock.monotonic()
            elif self._clock.monotonic() - received_s > _SILENCE_S:
                self.close()
                raise Retriable(f"could not {tried}: no record within {_SILENCE_S:.0f} s")

    def close(self) -> None:
        """Free the client; the next read goes on from where this one is."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

    def _taken(self, message: Message, tried: str) -> Iterator[Message]:
        offset = message.offset()
        if (error := message.error()) is None:
            if offset is not None and offset >= self._position:
                self._position = offset + 1
                yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            self._position = max(self._position, offset or 0)
        elif not is_about_group(error):
            self.close()
            raise translate(error, tried)

    def _opened(self) -> Consumer:
        if self._consumer is not None and self._renewal.due:
            self.close()
        if self._consumer is None:
            self._renewal = Renewal(self._cluster)
            settings = {
                # Compaction and retention move the start: what is gone is not missed.
                "auto.offset.reset": "earliest",
                # A new record ends a wait; between reads a client asks once a second.
                "fetch.wait.max.ms": 1_000,
            }
            self._consumer = self._clients.consumer(self._cluster, settings)
            assign(self._consumer, [(self._at, self._position)])
        return self._consumer
