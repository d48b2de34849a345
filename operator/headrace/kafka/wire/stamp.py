"""Header of a stored batch, changed into a producer's; its records are not touched.

Brokers require values from a producer that stored batches lack: base offset 0 (otherwise compressed
batches are compressed again), no leader epoch, no bits of cleaning or of another transaction, and a
sequence.
"""

import struct
from array import array
from typing import NamedTuple

from headrace.kafka.wire.batches import HEADER_BYTES, Batch
from headrace.kafka.wire.checksums import changed
from headrace.kafka.wire.native import Native, address_of, native
from headrace.kafka.wire.scan import COLUMNS, RECORDS, batch_at
from headrace.kafka.wire.transactions import ProducerIdentity

MAX_SEQUENCE = 2**31 - 1
_TRANSACTIONAL = 0x10
_KEPT = 0x0F  # codec and type of timestamps; not: transactional, control, delete horizon
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKSUM, _CHECKSUM_AT = struct.Struct(">I"), 17
_CHANGED = slice(21, 57)  # of what the checksum covers: attributes to sequence


class Stamped(NamedTuple):
    """A batch in two parts, which are sent one after the other."""

    header: bytearray
    records: memoryview


def stamped(batch: Batch, producer: ProducerIdentity, sequence: int) -> Stamped:
    """Return a batch of magic 2 for the target.

    Its checksum is valid only if the original's was.
    """
    (_, length, _, magic, checksum, attributes, delta, base, newest, _, _, _, count, data) = batch
    attributes = attributes & _KEPT | _TRANSACTIONAL * producer.transactional
    header = bytearray(
        _HEADER.pack(
            0, length, -1, magic, 0, attributes, delta, base, newest,
            producer.producer_id, producer.epoch, sequence, count,
        )
    )  # fmt: skip
    checksum = changed(checksum, data[_CHANGED], header[_CHANGED], len(data) - _CHANGED.stop)
    _CHECKSUM.pack_into(header, _CHECKSUM_AT, checksum)
    return Stamped(header, data[HEADER_BYTES:])


def stamp(
    data: memoryview,
    rows: "array[int]",
    producer: ProducerIdentity,
    sequence: int,
    helper: Native | None = None,
) -> bytearray:
    """Return the headers of all batches that ``rows`` describe in ``data``, behind each other.

    They are those of ``stamped``, with sequences from ``sequence`` on. ``helper`` replaces the
    library of this installation.
    """
    count = len(rows) // COLUMNS
    headers = bytearray(count * HEADER_BYTES)
    found = helper or native()
    if found is None or data.readonly or not count:
        for number in range(count):
            one = stamped(batch_at(data, rows, number), producer, sequence)
            headers[number * HEADER_BYTES : (number + 1) * HEADER_BYTES] = one.header
            sequence = sequence_after(sequence, rows[number * COLUMNS + RECORDS])
        return headers
    after = found.stamp(
        address_of(data), len(data), address_of(rows), count,
        producer.producer_id, producer.epoch, producer.transactional, sequence,
        address_of(headers),
    )  # fmt: skip
    if after < 0:
        raise ValueError("a row describes a batch that is not in the response")
    return headers


def sequence_after(sequence: int, records: int) -> int:
    """Return the sequence of the next batch; the largest is followed by 0."""
    return (sequence + records) & MAX_SEQUENCE
