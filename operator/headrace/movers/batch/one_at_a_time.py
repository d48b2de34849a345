"""Records that are sent one at a time, or by few: one of them is refused, and it is to be found."""

from collections import deque
from collections.abc import Iterable
from math import isqrt

from headrace.kafka.wire import StoredRecord, decoded
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.lane import SourceRecord

_FEW = 64
"""Number of records up to which each is sent alone. A rejection requires a new lane, which takes
about as long as sending this many records one after the other.
"""


class OneAtATime:
    """Suspect batches of one partition. They have memory of their own and hold no response."""

    def __init__(self, suspects: range) -> None:
        """``suspects``: source offsets."""
        self._suspects = suspects
        self._waiting: deque[Outgoing] = deque()
        self._originals: dict[int, StoredRecord] = {}
        """Records as the source has them, by offset, if they are sent alone."""

    @property
    def together(self) -> int:
        """Number of records in one batch: with many suspects, the square root of their number."""
        return 1 if len(self._suspects) <= _FEW else isqrt(len(self._suspects))

    @property
    def waiting(self) -> bool:
        """Whether something is held back: nothing behind it may be sent, or read."""
        return bool(self._waiting)

    def concerns(self, first_offset: int, next_offset: int) -> bool:
        """Whether there is a suspect among these."""
        return first_offset < self._suspects.stop and self._suspects.start < next_offset

    def put(self, outgoing: Iterable[Outgoing]) -> None:
        """Hold them until it is their turn."""
        self._waiting.extend(outgoing)

    def next(self) -> Outgoing | None:
        """Return the next batch to send, once all before it are acknowledged."""
        return self._waiting.popleft() if self._waiting else None

    def remember(self, records: Iterable[StoredRecord]) -> None:
        """Keep the source's records of the batches that were put in: each is sent alone."""
        for record in records:
            self._originals[record.offset] = record._replace(content=bytes(record.content))

    def source_record(self, offset: int) -> SourceRecord:
        """Return the record that is sent alone, as the source has it."""
        record = decoded(self._originals[offset])
        return SourceRecord(
            record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)
        )

    def drop(self) -> None:
        """Forget what is held."""
        while self._waiting:
            self._waiting.popleft().release()
