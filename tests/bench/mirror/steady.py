"""A fixed rate of records, watched from both sides.

Measured are the time that the replicator adds to each record, and how long nothing arrives when it
is killed. Each record carries its number. One consumer reads it at the source, another at the
target, on the same clock: the difference is the replicator's own share, with the target's
acknowledgement in it.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import inf

import psutil
from bench.mirror.measure import access, records_in, used
from bench.mirror.subjects import Replicator, Subject, running
from bench.mirror.workloads import PARTITIONS
from support.flows import drivers_of

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import Admin, Position, assign, make_consumer, make_producer
from headrace.sandbox import Sandbox

RATES = (200, 2_000)
"""Records a second."""
_VALUE_BYTES = 1000
_HEAD = struct.Struct(">Q")
_WARM_S = 20.0
"""Warm-up time, in which a JVM compiles."""
_MEASURED_S = 30.0
_PARTS = (0.5, 0.99, 0.999)
_START_S = 90.0
_KILLED_S = 60.0
"""Longest silence that is measured: MirrorMaker 2 waits up to five minutes for a lost worker."""


@dataclass(frozen=True)
class Steady:
    """Figures of one replicator at one rate."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_percent: float
    """CPU in percent of one core."""
    silence_s: float
    """Seconds from its kill -9 until the first record that was sent afterwards arrived."""


def steady(subject: Subject, sandbox: Sandbox, alias: str, rate: int) -> Steady:
    """Measure, then kill; raises ``GaveUp`` when records do not arrive."""
    topic = f"steady-{alias}"
    source = access(sandbox, "east")
    Admin(source).create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        process = stack.enter_context(running(subject, sandbox, alias, topic))
        sent = stack.enter_context(sending(source, topic, rate))
        at_source = stack.enter_context(arrivals(source, topic))
        admin = Admin(access(sandbox, "west"))
        wait_until(
            lambda: records_in(admin, f"{alias}.{topic}") > 0, f"{subject.name} copied nothing"
        )
        at_target = stack.enter_context(arrivals(access(sandbox, "west"), f"{alias}.{topic}"))
        time.sleep(_WARM_S)
        first, cpu_s = sent(), used(process)[0]
        time.sleep(_MEASURED_S)
        last, spent_s = sent(), used(process)[0] - cpu_s
        wait_until(
            lambda: all(number in at_target for number in range(first, last)),
            f"{subject.name} did not copy all of {last - first:,} records",
        )
        shares = sorted(at_target[n] - at_source[n] for n in range(first, last))
        if subject.replicator is Replicator.HEADRACE:
            _driver(process).kill()
        else:
            process.kill()
        killed_s, killed = time.monotonic(), sent()
        if (
            subject.replicator is not Replicator.HEADRACE
        ):  # it has no other process that starts it again
            stack.enter_context(running(subject, sandbox, alias, topic))
        back_s = inf
        while back_s == inf and time.monotonic() < killed_s + _KILLED_S:
            time.sleep(0.1)
            back_s = min((at_target.get(n, inf) for n in range(killed, sent())), default=inf)
    p50_ms, p99_ms, p999_ms = (1000 * shares[int(part * len(shares))] for part in _PARTS)
    return Steady(
        p50_ms,
        p99_ms,
        p999_ms,
        100 * spent_s / _MEASURED_S,
        back_s - killed_s,
    )


def rows(figures: Mapping[str, Steady]) -> str:
    """Return a Markdown table."""
    heads = ["", "own p50 ms", "p99", "p99.9", "CPU % of a core", "silence after kill -9, s"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, one in figures.items():
        row = [name, f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}", f"{one.p999_ms:.1f}"]
        silence = f"{one.silence_s:.1f}" if one.silence_s < inf else f"> {_KILLED_S:.0f}"
        lines.append([*row, f"{one.cpu_percent:.1f}", silence])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@contextmanager
def sending(
    source: ClusterAccess, topic: str, rate: int, partitions: int = PARTITIONS
) -> Iterator[Callable[[], int]]:
    """Send records, and yield a function that returns the number of the next one."""
    # Without idempotence, which polls without a rest where more than five partitions have records.
    producer = make_producer(source, {"enable.idempotence": False, "linger.ms": 5})
    number = 0
    stop = threading.Event()

    def send() -> None:
        nonlocal number
        began_s = time.monotonic()
        while not stop.is_set():
            while number < (time.monotonic() - began_s) * rate:
                value = _HEAD.pack(number).ljust(_VALUE_BYTES, b"x")
                producer.produce(topic, value, partition=number % partitions)
                number += 1
            producer.poll(0.001)

    with thread(send, stop):
        yield lambda: number
    producer.flush(10)


@contextmanager
def arrivals(
    cluster: ClusterAccess, topic: str, partitions: int = PARTITIONS
) -> Iterator[dict[int, float]]:
    """Yield the times at which records are first seen, from now on."""
    consumer = make_consumer(cluster, {"auto.offset.reset": "latest"})
    ats = [TopicPartition(topic, number) for number in range(partitions)]
    ends = Admin(cluster).offsets(ats, Position.LATEST)
    assign(consumer, ends.items())
    seen: dict[int, float] = {}
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                (number,) = _HEAD.unpack_from(message.value() or b"")
                seen.setdefault(number, time.monotonic())

    with thread(read, stop):
        yield seen
    consumer.close()


@contextmanager
def thread(run: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    running = threading.Thread(target=run)
    running.start()
    try:
        yield
    finally:
        stop.set()
        running.join()


def wait_until(done: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _START_S
    while not done():
        if time.monotonic() > deadline:
            raise GaveUp(f"{otherwise} within {_START_S:.0f} s")
        time.sleep(0.1)


def _driver(run: psutil.Process) -> psutil.Process:
    return next(iter(drivers_of(run.pid)))
