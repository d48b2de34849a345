"""Control batches: markers of the ends of transactions."""

import struct

from headrace.kafka.wire.batches import HEADER_BYTES, Batch
from headrace.kafka.wire.errors import CorruptBatch

_KEY = struct.Struct(">hh")  # version, type
_KEY_BYTES = 4
_FIXED_BYTES = 4  # length, attributes, and both deltas of the one record: a byte each


def aborts(batch: Batch) -> bool:
    """Whether a control batch ends its producer's transaction by aborting it.

    It has one record, never compressed, with small deltas; other types are commits, and those of
    Raft, which no data partition has. Raises ``CorruptBatch``.
    """
    place = HEADER_BYTES + _FIXED_BYTES
    data = batch.data
    # Lengths are zigzag-encoded.
    if len(data) < place + 1 + _KEY_BYTES or data[place] != 2 * _KEY_BYTES:
        raise CorruptBatch(f"the control batch at offset {batch.base_offset} has no readable key")
    _, kind = _KEY.unpack_from(data, place + 1)
    return bool(kind == 0)
