"""Costs of a catch-up for others: a producer on the target, and slow partitions of the flow."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import psutil
from bench.mirror.measure import access
from bench.mirror.steady import arrivals, sending, thread, wait_until
from bench.mirror.subjects import ending, started
from bench.mirror.workloads import PARTITIONS
from support.flows import drivers_of

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import Admin, Position, make_producer
from headrace.sandbox import Sandbox

MANY = 1_000
"""Number of partitions that are caught up beside the producer."""
LIMIT_BYTES_PER_S = 20_000_000
_SLOW = 50
_VALUE = b"x" * 1_000
_CAUGHT_UP, _BACKLOG = 1_000_000, 2_500_000
"""Number of records of 1,000 B."""
_LONGEST_S = 30.0
_RATE = 200


@dataclass(frozen=True)
class Delay:
    """Delays of others' records during one phase, and the memory of the driver."""

    p50_ms: float
    p99_ms: float
    seconds: float
    """Length of the phase."""
    peak_rss_mb: float | None = None


def beside_catch_up(sandbox: Sandbox, report: Callable[[str], None]) -> dict[str, Delay]:
    """Return the time until a producer's records on the target are acknowledged.

    A flow meanwhile catches up ``MANY`` partitions.
    """
    east, west = access(sandbox, "east"), access(sandbox, "west")
    report(f"sending {_CAUGHT_UP:,} records to {MANY:,} partitions ...")
    _fill(east, "many", MANY, _CAUGHT_UP)
    Admin(west).create_topic("own", PARTITIONS)
    found: dict[str, Delay] = {}
    with _producing(west, "own") as acknowledged:
        report("producer alone ...")
        time.sleep(5.0)
        acknowledged.clear()
        began_s = time.monotonic()
        time.sleep(10.0)
        found["producer alone"] = _delay(acknowledged, began_s)
        limits: Mapping[str, dict[str, object]] = {
            "beside a catch-up": {},
            f"... with bandwidth {LIMIT_BYTES_PER_S // 1_000_000} MB/s": {
                "bandwidth": {"bytesPerSecond": LIMIT_BYTES_PER_S}
            },
        }
        for number, (name, spec) in enumerate(limits.items()):
            report(f"{name} ...")
            alias = f"n{number}"
            copied = partial(_records, Admin(west), f"{alias}.many", MANY)
            with _flow(sandbox, alias, ["many"], spec) as run:
                _wait_for_first(copied)
                acknowledged.clear()
                found[name] = _watched(run, acknowledged, copied)
            Admin(west).delete_topic(f"{alias}.many")
    return found


def beside_backlog(sandbox: Sandbox, report: Callable[[str], None]) -> dict[str, Delay]:
    """Return the delays of ``_SLOW`` slow partitions, alone and beside one with a long backlog."""
    east, west = access(sandbox, "east"), access(sandbox, "west")
    report(f"sending {_BACKLOG:,} records to one partition ...")
    _fill(east, "backlog", 1, _BACKLOG)
    Admin(east).create_topic("slow", _SLOW)
    found: dict[str, Delay] = {}
    with sending(east, "slow", _RATE, _SLOW), arrivals(east, "slow", _SLOW) as at_source:
        for number, topics in enumerate((["slow"], ["slow", "backlog"])):
            name = "slow partitions beside a backlog" if number else "slow partitions alone"
            report(f"{name} ...")
            alias = f"b{number}"
            copied = partial(_records, Admin(west), f"{alias}.slow", _SLOW)
            with _flow(sandbox, alias, topics, {}) as run:
                _wait_for_first(copied)
                with arrivals(west, f"{alias}.slow", _SLOW) as at_target:
                    began_s = time.monotonic()
                    while time.monotonic() - began_s < (_LONGEST_S if number else 10.0):
                        done = _records(Admin(west), f"{alias}.backlog", 1)
                        if number and done >= _BACKLOG:
                            break
                        time.sleep(0.2)
                    seen = dict(at_target)
                delays = [seen[one] - at_source[one] for one in seen.keys() & at_source.keys()]
                found[name] = _delay(delays, began_s, _rss_mb(run))
    return found


def rows(figures: Mapping[str, Delay]) -> str:
    """Return a Markdown table."""
    lines = [["", "p50 ms", "p99 ms", "duration, s", "peak memory of the driver, MB"]]
    lines.append(["---", *["---:"] * 4])
    for name, one in figures.items():
        memory = "" if one.peak_rss_mb is None else f"{one.peak_rss_mb:.0f}"
        lines.append([name, f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}", f"{one.seconds:.0f}", memory])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@contextmanager
def _flow(
    sandbox: Sandbox, alias: str, topics: Sequence[str], spec: Mapping[str, object]
) -> Iterator[psutil.Process]:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    flow = {
        "source": {"alias": alias, "bootstrapServers": east.bootstrap_servers},
        "target": {"alias": "west", "bootstrapServers": west.bootstrap_servers},
        "topics": {"include": list(topics)},
        **spec,
    }
    with ending(started(alias, flow, sandbox.folder)) as run:
        yield run


def _fill(source: ClusterAccess, topic: str, partitions: int, records: int) -> None:
    Admin(source).create_topic(topic, partitions)
    producer = make_producer(
        source, {"linger.ms": 200, "batch.size": 16 << 10, "queue.buffering.max.messages": 500_000}
    )
    for number in range(records):
        while True:
            try:
                producer.produce(topic, _VALUE, partition=number // 16 % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(120):
        raise GaveUp(f"the records of {topic} were not acknowledged within 120 s")


@contextmanager
def _producing(target: ClusterAccess, topic: str) -> Iterator[list[float]]:
    """Yield the delays in seconds of a producer's records, to which new ones are added."""
    producer = make_producer(target, {"linger.ms": 0})
    delays: list[float] = []
    stop = threading.Event()

    def send() -> None:
        number, began_s = 0, time.monotonic()
        while not stop.is_set():
            while number < (time.monotonic() - began_s) * _RATE:
                sent_s = time.monotonic()
                producer.produce(
                    topic,
                    _VALUE,
                    partition=number % PARTITIONS,
                    on_delivery=lambda *_, sent_s=sent_s: delays.append(time.monotonic() - sent_s),
                )
                number += 1
            producer.poll(0.001)

    with thread(send, stop):
        yield delays
    producer.flush(10)


def _wait_for_first(copied: Callable[[], int]) -> None:
    wait_until(lambda: copied() > 0, "nothing was copied")


def _watched(run: psutil.Process, delays: list[float], copied: Callable[[], int]) -> Delay:
    began_s, peak_mb = time.monotonic(), 0.0
    while copied() < _CAUGHT_UP and time.monotonic() - began_s < _LONGEST_S:
        peak_mb = max(peak_mb, _rss_mb(run))
        time.sleep(0.2)
    return _delay(delays, began_s, peak_mb)


def _delay(delays: Sequence[float], began_s: float, peak_mb: float | None = None) -> Delay:
    found = sorted(delays)
    p50_ms, p99_ms = (1000 * found[int(part * len(found))] for part in (0.5, 0.99))
    return Delay(p50_ms, p99_ms, time.monotonic() - began_s, peak_mb)


def _rss_mb(run: psutil.Process) -> float:
    return max(one.memory_info().rss for one in drivers_of(run.pid)) / 1e6


def _records(admin: Admin, topic: str, partitions: int) -> int:
    try:
        ats = [TopicPartition(topic, number) for number in range(partitions)]
        return sum(admin.offsets(ats, Position.LATEST).values())
    except HeadraceError:
        return 0  # not created yet
