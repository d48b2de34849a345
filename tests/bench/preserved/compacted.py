"""A compacted topic of which one record in ten is left: how long its copy takes."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.mirror.measure import access, used
from bench.preserved.copies import START_S, Ends, copying
from support.records import set_topic

from headrace.api import ClusterAccess
from headrace.errors import GaveUp
from headrace.kafka import Admin, make_producer
from headrace.kafka.wire import split_batches
from headrace.sandbox import Sandbox

PARTITIONS = 8
LIVE = 0.1
MEASURED_S = 120.0
_COMPACTED_S = 120.0
_VALUE_BYTES = 100
_AT_ONCE = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1", "segment.ms": "1000",
}  # fmt: skip
_CALM = {
    "min.cleanable.dirty.ratio": "0.5", "max.compaction.lag.ms": "9223372036854775807",
    "segment.ms": "604800000",
}  # fmt: skip


@dataclass(frozen=True)
class Compacted:
    """Figures of one method."""

    offsets: int
    records: int
    copied: int
    """Offsets; they take at most ``MEASURED_S``."""
    seconds: float
    cpu_s: float

    @property
    def whole_s(self) -> float:
        """Seconds for all offsets, at this rate."""
        return self.seconds * self.offsets / max(1, self.copied)


def compacted_topic(sandbox: Sandbox, offsets: int, say: Callable[[str], None]) -> tuple[str, int]:
    """Create a compacted topic, and return its name and its number of records, which is random."""
    topic, east = f"compacted-{offsets}", access(sandbox, "east")
    Admin(east).create_topic(topic, PARTITIONS, config=_AT_ONCE)
    say(f"sending {offsets:,} records ...")
    _send(east, topic, offsets)
    say("the source compacts them ...")
    deadline_s = time.monotonic() + _COMPACTED_S
    while (left := _records(sandbox, topic)) > offsets * LIVE * 1.1 + 100 * PARTITIONS:
        if time.monotonic() > deadline_s:
            raise GaveUp(f"{left:,} of {offsets:,} records are left after {_COMPACTED_S:.0f} s")
        time.sleep(1.1)  # a segment ends with the next record
        _send(east, topic, PARTITIONS)
    for name, value in _CALM.items():
        set_topic(east, topic, name, value)
    return topic, left


def _send(east: ClusterAccess, topic: str, count: int) -> None:
    chance = random.Random(count)
    producer = make_producer(east, {"queue.buffering.max.messages": 1_000_000, "linger.ms": 100})
    for number in range(count):
        key = b"live-%d" % number if chance.random() < LIVE else b"gone"
        value = b"%d-" % number + b"v" * _VALUE_BYTES
        while True:
            try:
                producer.produce(topic, value, key=key, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise GaveUp(f"the records of {topic} were not acknowledged within 60 s")


def _records(sandbox: Sandbox, topic: str) -> int:
    found = 0
    for folder in sandbox.cluster("east").broker(1).data.glob(f"{topic}-*"):
        for file in folder.glob("*.log"):
            batches = split_batches(memoryview(file.read_bytes())).batches
            found += sum(one.record_count for one in batches)
    return found


def copied(
    sandbox: Sandbox, topic: str, records: int, method: str, say: Callable[[str], None]
) -> Compacted:
    """Copy a topic by a flow of its own, for two minutes at most."""
    say(f"{topic}: {method} ...")
    alias = method.lower()
    offsets = Ends(access(sandbox, "east"), topic, PARTITIONS)()
    ends = Ends(access(sandbox, "west"), f"{alias}.{topic}", PARTITIONS)
    east, west = (sandbox.cluster(name).bootstrap_servers for name in ("east", "west"))
    kind = {"mode": "Preserved", "holes": method}
    with copying(sandbox.folder, alias, east, west, topic, offsets=kind) as process:
        began_s = ends.wait(1, START_S)
        before_s, _ = used(process)
        while (found := ends()) < offsets and time.monotonic() < began_s + MEASURED_S:
            time.sleep(0.1)
        took_s = time.monotonic() - began_s
        return Compacted(offsets, records, found, took_s, used(process)[0] - before_s)


def rows(found: dict[str, Compacted]) -> str:
    """Return a Markdown table."""
    lines = ["| | offsets | records | copied | seconds | for all of it, s | CPU, s |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    lines += [
        f"| {name} | {one.offsets:,} | {one.records:,} | {one.copied:,} | {one.seconds:.1f} "
        f"| {one.whole_s:.0f} | {one.cpu_s:.1f} |"
        for name, one in found.items()
    ]
    return "\n".join(lines)
