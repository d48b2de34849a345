"""A source that begins at offset N: how long its copy is filled up to there, and with what."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from bench.mirror.measure import access
from bench.preserved.copies import START_S, Ends, copying

from headrace.api import TopicPartition
from headrace.datapath.preserved.owner import End, identified
from headrace.datapath.preserved.takeover import pad
from headrace.errors import GaveUp
from headrace.kafka import Admin, make_producer
from headrace.kafka.wire import ClusterClient, EventLoop, ProducerIdentity, start
from headrace.sandbox import Sandbox

_LEAST_PER_S = 100_000
_POLL_S = 0.05


@dataclass(frozen=True)
class Padded:
    """Figures of one partition."""

    offsets: int
    seconds: float
    """Seconds from the first filler to the first record after the fillers."""
    log_bytes: int
    """Most bytes of the copy's log."""


def padded(sandbox: Sandbox, offsets: int, say: Callable[[str], None]) -> Padded:
    """Raise the source's first offset by the same means, then let a flow copy it."""
    topic, east = f"padded-{offsets}", access(sandbox, "east")
    at = TopicPartition(topic, 0)
    Admin(east).create_topic(topic, 1)
    say(f"the source is made to begin at offset {offsets:,} ...")
    within_s = START_S + offsets / _LEAST_PER_S
    with closing(EventLoop()) as loop, closing(ClusterClient(loop, east)) as cluster:
        owner = loop.wait(start(identified(cluster, "bench-padding")), within_s)
        loop.wait(start(cluster.refresh({topic})), within_s)
        end = End(0, ProducerIdentity(-1, -1), 0, known=False)
        loop.wait(start(pad(cluster, owner, at, end, offsets)), within_s)
    producer = make_producer(east)
    producer.produce(topic, b"value", key=b"key", partition=0)
    if producer.flush(30):
        raise GaveUp(f"the record of {topic} was not acknowledged within 30 s")
    west = sandbox.cluster("west")
    folder = west.broker(1).data / f"p{offsets}.{topic}-0"
    ends = Ends(access(sandbox, "west"), f"p{offsets}.{topic}", 1)
    log_bytes, began_s = 0, 0.0
    say(f"the copy is filled up to offset {offsets:,} ...")
    servers = sandbox.cluster("east").bootstrap_servers, west.bootstrap_servers
    with copying(sandbox.folder, f"p{offsets}", *servers, topic):
        deadline_s = time.monotonic() + within_s
        while (found := ends()) <= offsets:
            size = sum(file.stat().st_size for file in folder.glob("*.log"))
            log_bytes = max(log_bytes, size)
            if size and not began_s:
                began_s = time.monotonic() - _POLL_S / 2
            if time.monotonic() > deadline_s:
                raise GaveUp(f"{topic} is filled up to {found:,} after {within_s:.0f} s")
            time.sleep(_POLL_S)
        return Padded(offsets, time.monotonic() - began_s, log_bytes)


def rows(one: Padded) -> str:
    """Return a Markdown table."""
    lines = ["| offsets | seconds | offsets/s | bytes of the log, at most | an offset |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: |")
    lines.append(
        f"| {one.offsets:,} | {one.seconds:.1f} | {one.offsets / one.seconds:,.0f} "
        f"| {one.log_bytes:,} | {one.log_bytes / one.offsets:.2f} |"
    )
    return "\n".join(lines)
