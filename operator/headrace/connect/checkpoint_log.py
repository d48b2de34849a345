"""The checkpoints of a flow's source, read from their topic and written to it."""

from collections.abc import Iterable

from headrace.connect.context import FlowContext
from headrace.connect.internal_topics import ensure_checkpoints_topic
from headrace.connect.topic_tail import TopicTail
from headrace.errors import Retriable
from headrace.kafka import KafkaError, KafkaException, Message, Renewed, translate, translated
from headrace.logs import get_logger
from headrace.replication import Checkpoint, Precision, next_checkpoint

log = get_logger(__name__)

_ANSWER_S = 10.0


class CheckpointLog:
    """One thread calls it."""

    def __init__(self, context: FlowContext) -> None:
        self.topic = context.checkpoints_topic
        self._context = context
        settings = {"partitioner": "murmur2"}
        self._producer = Renewed(
            context.target_access, lambda: context.clients.producer(context.target_access, settings)
        )
        self._tail: TopicTail | None = None
        self._written: dict[bytes, Checkpoint] = {}
        """By key; also what other tasks have written."""

    def prepare(self) -> None:
        """Make the topic where it is absent, and read what was written since the last call."""
        context = self._context
        if self._tail is None:
            ensure_checkpoints_topic(context.target, self.topic)
            self._tail = TopicTail(
                self.topic, context.target_access, context.target, context.clients, context.clock
            )
        for message in self._tail.read():
            key, value = message.key() or b"", message.value()
            if value is None:
                self._written.pop(key, None)
                continue
            try:
                self._written[key] = Checkpoint.decode(key, value)
            except ValueError as error:
                log.warning("unreadable checkpoint", offset=message.offset(), why=str(error))

    def written(self) -> Iterable[Checkpoint]:
        """What the topic held when it was read last."""
        return self._written.values()

    def write(self, checkpoints: Iterable[tuple[Checkpoint, Precision]]) -> None:
        """Write those that say something new, and wait until the target has them."""
        wanted = [
            made
            for checkpoint, precision in checkpoints
            if (made := next_checkpoint(checkpoint, precision, self._written.get(checkpoint.key())))
        ]
        if not wanted:
            return
        tried = f"write checkpoints to topic {self.topic} on {self._context.target.name}"
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        producer = self._producer.get()
        with translated(tried):
            for one in wanted:
                producer.produce(self.topic, one.value(), one.key(), 0, on_delivery=delivered)
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
        self._written |= {one.key(): one for one in wanted}

    def close(self) -> None:
        """Free the reader."""
        if self._tail is not None:
            self._tail.close()
        self._tail = None
