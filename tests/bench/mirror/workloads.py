"""Workloads that are copied."""

import os
from dataclasses import dataclass

from headrace.api import ClusterAccess
from headrace.errors import GaveUp
from headrace.kafka import Admin, make_producer

PARTITIONS = 8


@dataclass(frozen=True)
class Workload:
    """Records of one size, in batches of one size and codec."""

    value_bytes: int
    batch_bytes: int
    """Most bytes of a batch; 0 puts each record into a batch of its own."""
    codec: str
    records: int

    @property
    def name(self) -> str:
        """Name for people, which is also the topic's name."""
        batch = f"{self.batch_bytes >> 10}kib" if self.batch_bytes else "1record"
        return f"{self.value_bytes}b-{batch}-{self.codec}"


QUICK = (
    Workload(1000, 16 << 10, "none", 600_000),
    Workload(1000, 16 << 10, "lz4", 600_000),
    Workload(100, 16 << 10, "none", 1_500_000),
    Workload(1000, 1 << 20, "lz4", 600_000),
)
ENCRYPTED = Workload(1001, 16 << 10, "lz4", 600_000)
"""Workload of the copies with TLS. Its size gives it a topic of its own."""
FULL = (
    *(
        Workload(size, batch, codec, records)
        for size, records in ((1000, 2_000_000), (100, 6_000_000))
        for batch in (16 << 10, 1 << 20)
        for codec in ("none", "lz4", "zstd")
    ),
    Workload(1000, 0, "none", 300_000),
    Workload(100, 0, "none", 300_000),
)
REPEATED = tuple(one for one in FULL if one.batch_bytes and one.codec != "zstd")[:6]
"""Workloads of the full run that are measured several times."""


def produce(source: ClusterAccess, workload: Workload) -> None:
    """Make the topic, and send the records."""
    Admin(source).create_topic(workload.name, PARTITIONS)
    append(source, workload)


def append(source: ClusterAccess, workload: Workload) -> None:
    """Send the records to an existing topic. Values are compressible by half."""
    settings = {
        "batch.size": workload.batch_bytes or 1 << 14,
        "batch.num.messages": 100_000 if workload.batch_bytes else 1,
        "linger.ms": 200 if workload.batch_bytes else 0,
        "message.max.bytes": 4 << 20,
        "compression.type": workload.codec,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = make_producer(source, settings)
    half = workload.value_bytes // 2
    values = [os.urandom(half) + b"x" * (workload.value_bytes - half) for _ in range(1000)]
    for number in range(workload.records):
        while True:
            try:
                producer.produce(
                    workload.name,
                    values[number % 1000],
                    key=b"%09d" % number,
                    partition=number % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(120):
        raise GaveUp(f"the records of {workload.name} were not acknowledged within 120 s")
