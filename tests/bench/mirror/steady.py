"""A fixed rate of records, watched from both sides: what the replicator adds to the time that a
record takes, and how long nothing arrives when it is killed.

Each record carries its number. One consumer reads it at the source, another at the target, on the
same clock: the difference is the replicator's own share, with the target's acknowledgement in it.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import inf

import psutil
from bench.mirror.measure import access, used
from bench.mirror.subjects import Subject, running
from bench.mirror.workloads import PARTITIONS

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import Admin, Position, assign, make_consumer, make_producer
from headrace.sandbox import Sandbox

RATES = (200, 2_000)
"""Records a second."""
_VALUE_BYTES = 1000
_HEAD = struct.Struct(">Q")
_WARM_S = 20.0
"""A JVM compiles meanwhile."""
_MEASURED_S = 30.0
_PARTS = (0.5, 0.99, 0.999)
_START_S = 90.0
_KILLED_S = 60.0
"""MirrorMaker 2's workers wait up to five minutes for one that is gone."""


@dataclass(frozen=True)
class Steady:
    """One replicator at one rate."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_percent: float
    """Of one core."""
    silence_s: float
    """From its kill -9 until the first record that was sent afterwards arrived."""


def steady(subject: Subject, sandbox: Sandbox, alias: str, rate: int) -> Steady:
    """Measure, then kill; raises ``GaveUp`` when records do not arrive."""
    topic = f"steady-{alias}"
    source = access(sandbox, "east")
    Admin(source).create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        process = stack.enter_context(running(subject, sandbox, alias, topic))
        sent = stack.enter_context(_sending(source, topic, rate))
        at_source = stack.enter_context(_arrivals(source, topic))
        _wait_for(access(sandbox, "west"), f"{alias}.{topic}", subject)
        at_target = stack.enter_context(_arrivals(access(sandbox, "west"), f"{alias}.{topic}"))
        time.sleep(_WARM_S)
        first, cpu_s, _ = len(sent), *used(process)
        time.sleep(_MEASURED_S)
        last, spent_s = len(sent), used(process)[0] - cpu_s
        _all_of(at_target, range(first, last), subject)
        shares = sorted(at_target[n] - at_source[n] for n in range(first, last))
        if subject.mover:
            _driver(process).kill()
        else:
            process.kill()
        killed_s, killed = time.monotonic(), len(sent)
        if not subject.mover:  # it has no other process that starts it again
            stack.enter_context(running(subject, sandbox, alias, topic))
        back_s = inf
        while back_s == inf and time.monotonic() < killed_s + _KILLED_S:
            time.sleep(0.1)
            back_s = min((at_target.get(n, inf) for n in range(killed, len(sent))), default=inf)
    p50_ms, p99_ms, p999_ms = (1000 * shares[int(part * len(shares))] for part in _PARTS)
    return Steady(
        p50_ms,
        p99_ms,
        p999_ms,
        100 * spent_s / _MEASURED_S,
        back_s - killed_s,
    )


def rows(figures: Mapping[str, Steady]) -> str:
    """A Markdown table."""
    heads = ["", "own p50 ms", "p99", "p99.9", "CPU % of a core", "silence after kill -9, s"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, one in figures.items():
        row = [name, f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}", f"{one.p999_ms:.1f}"]
        silence = f"{one.silence_s:.1f}" if one.silence_s < inf else f"> {_KILLED_S:.0f}"
        lines.append([*row, f"{one.cpu_percent:.1f}", silence])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@contextmanager
def _sending(source: ClusterAccess, topic: str, rate: int) -> Iterator[list[float]]:
    """The moments at which the records were sent, by their numbers."""
    # Without idempotence, which polls without a rest where more than five partitions have records.
    producer = make_producer(source, {"enable.idempotence": False, "linger.ms": 5})
    sent: list[float] = []
    stop = threading.Event()

    def send() -> None:
        began_s = time.monotonic()
        while not stop.is_set():
            while len(sent) < (time.monotonic() - began_s) * rate:
                value = _HEAD.pack(len(sent)).ljust(_VALUE_BYTES, b"x")
                producer.produce(topic, value, partition=len(sent) % PARTITIONS)
                sent.append(time.monotonic())
            producer.poll(0.001)

    with _thread(send, stop):
        yield sent
    producer.flush(10)


@contextmanager
def _arrivals(cluster: ClusterAccess, topic: str) -> Iterator[dict[int, float]]:
    """When each record was first seen, from now on."""
    consumer = make_consumer(cluster, {"auto.offset.reset": "latest"})
    ats = [TopicPartition(topic, number) for number in range(PARTITIONS)]
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

    with _thread(read, stop):
        yield seen
    consumer.close()


@contextmanager
def _thread(run: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _wait_for(target: ClusterAccess, topic: str, subject: Subject) -> None:
    """Until something is in the topic."""
    admin = Admin(target)
    ats = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(HeadraceError):  # just made
            if topic in admin.topics() and all(admin.offsets(ats, Position.LATEST).values()):
                return
        time.sleep(0.2)
    raise GaveUp(f"{subject.name} copied nothing within {_START_S:.0f} s")


def _all_of(arrived: Mapping[int, float], numbers: range, subject: Subject) -> None:
    deadline = time.monotonic() + _START_S
    while missing := sum(number not in arrived for number in numbers):
        if time.monotonic() > deadline:
            raise GaveUp(f"{subject.name} did not copy {missing:,} of {len(numbers):,} records")
        time.sleep(0.1)


def _driver(run: psutil.Process) -> psutil.Process:
    return next(one for one in run.children() if "driver" in one.cmdline())
