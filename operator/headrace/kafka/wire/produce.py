"""Produce, framed by hand: the hot path.

Each batch is an entry of its own among the buffers that are sent: the kernel copies it, nobody
else. kio 0.6.5 would join them (0.18 ms for 8 batches of 1 MiB).
"""

import struct
from collections.abc import Mapping

from kio.schema.produce.v9 import ProduceResponse

from headrace.kafka.wire.outcomes import Produced, all_appended, produced
from headrace.kafka.wire.protocol import PRODUCE, Buffer, Call, Released, read_whole
from headrace.kafka.wire.stamp import Stamped
from headrace.kafka.wire.varints import uvarint

_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX = struct.Struct(">i")


def produce_call(
    batches: Mapping[str, Mapping[int, Buffer | Stamped]],
    *,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> Call[Produced]:
    """Append one batch to each partition (brokers refuse more), acknowledged by all in-sync
    replicas. The batches are sent as they are, and must not change until the response.

    ``timeout_ms`` is what the broker waits for its replicas. Without ``transactional_id`` no batch
    may have the transactional bit.
    """
    parts: list[Buffer] = []
    records: Buffer
    text = bytearray(_string(transactional_id))
    text += _ACKS_TIMEOUT.pack(-1, timeout_ms)
    text += uvarint(len(batches) + 1)
    for topic, partitions in batches.items():
        text += _string(topic) + uvarint(len(partitions) + 1)
        for partition, batch in partitions.items():
            if isinstance(batch, Stamped):
                header, records = batch
                text += _INDEX.pack(partition) + uvarint(len(header) + len(records) + 1)
                text += header
            else:
                records = batch
                text += _INDEX.pack(partition) + uvarint(len(records) + 1)
            parts.append(text)
            parts.append(records)
            text = bytearray(b"\0")
        text += b"\0"
    text += b"\0"
    parts.append(text)
    return Call(*PRODUCE, parts, _read)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    content = text.encode()
    return uvarint(len(content) + 1) + content


def _read(frame: Released, place: int) -> Produced:
    try:
        return all_appended(frame.view, place) or produced(
            read_whole(ProduceResponse, frame.view, place, "produce")
        )
    finally:
        frame.release()
