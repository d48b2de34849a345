"""The rules by which a partition's leader accepts batches of one producer id."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from headrace.kafka.wire import Batch


@dataclass
class ProducerState:
    """A leader's state of a producer id, as in Kafka's ``ProducerStateManager``."""

    epoch: int
    next_sequence: int | None = None
    """None accepts any sequence, as of an unknown producer."""
    last_five: list[tuple[int, int, int]] = field(default_factory=list)
    """Sequence, number of records and offset of the last batches."""

    def decide(self, batch: Batch, append: Callable[[], int]) -> tuple[ErrorCode, int]:
        """Return the error of a batch and its offset. ``append`` writes it and returns its offset.

        A repeated batch is not written again.
        """
        for sequence, count, base_offset in self.last_five:
            if (sequence, count) == (batch.base_sequence, batch.record_count):
                return ErrorCode.none, base_offset
        if self.next_sequence not in (None, batch.base_sequence):
            return ErrorCode.out_of_order_sequence_number, -1
        base_offset = append()
        self.next_sequence = batch.base_sequence + batch.record_count
        entry = batch.base_sequence, batch.record_count, base_offset
        self.last_five = [*self.last_five[-4:], entry]
        return ErrorCode.none, base_offset
