"""The write side of a record lane."""

from functools import partial

from support.record_mover.in_flight_window import InFlightWindow

from headrace.kafka import KafkaError, KafkaException, Message, Producer, concerns_record
from headrace.timing import Clock


class Sending:
    """The owner of the producer. One thread calls it."""

    def __init__(self, producer: Producer | None, clock: Clock) -> None:
        self._producer, self._clock = producer, clock
        self.stopped: KafkaException | None = None
        """The fatal error of the producer."""

    def use(self, producer: Producer) -> None:
        """Send by this one from now on, when nothing is on its way."""
        self._producer, self.stopped = producer, None

    @property
    def left(self) -> int:
        """Records whose outcome is unknown."""
        return 0 if self._producer is None else len(self._producer)

    def poll(self, timeout_s: float = 0) -> None:
        """Receive delivery reports."""
        if self._producer is None:
            return
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:  # a fatal one; it is raised once
            self.stopped = error

    def send(self, window: InFlightWindow, message: Message, offset: int) -> bool:
        """Hand a record to the producer, with its source offset; whether it took it."""
        assert self._producer is not None
        _, timestamp_ms = message.timestamp()
        key, value = message.key(), message.value()
        try:
            self._producer.produce(
                window.target_topic,
                value,
                key,
                window.at.partition,
                on_delivery=partial(window.delivered, offset),
                timestamp=max(0, timestamp_ms),
                headers=message.headers(),
            )
        except KafkaException as refusal:
            if refusal.args[0].code() == KafkaError._FATAL:
                return False  # it stopped just now: the next polls raise that, then bring reports
            if not concerns_record(refusal.args[0]):
                raise
            window.passed(offset)  # all before it was sent
            window.refuse(offset, refusal.args[0])
            return False
        window.sent(offset, timestamp_ms, len(key or b"") + len(value or b""))
        leader_epoch = message.leader_epoch()
        window.leader_epoch = -1 if leader_epoch is None else leader_epoch
        return True

    def drop_unsent(self) -> None:
        """Drop queued records."""
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=False)

    def outcomes(self, timeout_s: float) -> int:
        """Wait for the outcome of sent records, and return the number of unknown ones.

        ``flush`` is not used, because it calls delivery reports while it raises a fatal error.
        """
        deadline = self._clock.monotonic() + timeout_s
        while (left := self.left) and self._clock.monotonic() < deadline:
            self.poll(0.05)
        return left

    def close(self) -> None:
        """Drop all, and free the client."""
        try:
            if self._producer is not None:
                self._producer.purge()
                self.outcomes(1)
        finally:
            # Its threads and buffers go with the last reference, and an error that was raised here
            # and is still reported refers to this object.
            del self._producer
