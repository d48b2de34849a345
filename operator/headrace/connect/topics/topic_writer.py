"""Writes to an internal topic."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.connect.runtime.context import FlowContext
from headrace.errors import Retriable
from headrace.kafka import KafkaError, KafkaException, Message, Renewed, translate, translated

_ANSWER_S = 10.0


class Keyed(NamedTuple):
    """A record to write."""

    key: bytes
    value: bytes | None
    """None: a tombstone."""
    headers: dict[str, str | bytes | None] | None = None


class TopicWriter:
    """On the target. One thread calls it."""

    def __init__(self, topic: str, context: FlowContext, *, by_key: bool = False) -> None:
        """Of one partition; ``by_key``: of several, which Java's clients choose by the key."""
        self._topic, self._target = topic, context.target
        self._partition = -1 if by_key else 0
        settings = {"partitioner": "murmur2"}
        self._producer = Renewed(
            context.target_access, lambda: context.clients.producer(context.target_access, settings)
        )

    def write(self, records: Iterable[Keyed], what: str) -> None:
        """Wait until the target has all of them; ``what`` is for messages.

        Raises what refused one of them, or ``Retriable`` without an answer: some may be there all
        the same.
        """
        tried = f"write {what} to topic {self._topic} on {self._target.name}"
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        producer = self._producer.get()
        with translated(tried):
            for key, value, headers in records:
                producer.produce(
                    self._topic,
                    value,
                    key,
                    self._partition,
                    on_delivery=delivered,
                    headers=headers,
                )
        try:
            left = producer.flush(_ANSWER_S)
        except KafkaException as error:
            self._producer.discard(producer)
            raise translate(error, tried) from error
        if errors:
            raise translate(errors[0], tried)
        if left:
            producer.purge()
            raise Retriable(f"could not {tried}: no answer within {_ANSWER_S:.0f} s")
