"""Metrics of a running job, with kafka-mirror-tester's names, types and buckets.

Its dashboards can therefore show them. The text format (Prometheus 0.0.4) is written here, because
the official client adds ``_total`` to counter names, and these names do not end in it.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import accumulate
from threading import Event, Thread
from typing import Any

from headrace.api import Load
from headrace.mirror_test import documents
from headrace.mirror_test.serving import Text, served
from headrace_spark.messages import Sighting, key_of
from headrace_spark.session import event

BUCKETS_MS = tuple(1000 << n for n in range(9))
"""Upper bounds of the buckets, from 1 s to 256 s."""
WINDOW_S = 5.0
SLACK = 0.1
"""Tolerated shortfall: as in kafka-mirror-tester, a rate below 90 % in 5 s is counted."""

_EVENT_S = 0.5

Sink = Callable[[Text], AbstractContextManager[object]]
"""Function that publishes a changing text while a ``with`` block runs."""
Name = tuple[bytes, bytes]
"""Producer and sequence number of a message."""


class LoadFigures:
    """Metrics of the load, from the producers' reports in the journal."""

    def __init__(
        self,
        load: Load,
        partitions: Sequence[int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._partitions, self._size_bytes = partitions, load.message_size_bytes
        self._wanted = (load.messages_per_second or 0) * len(partitions)
        self._reports: dict[str, Mapping[str, int]] = {}
        self._clock = clock
        self._since_s, self._before, self._behind = clock(), 0, 0

    def receive(self, key: str, value: Any) -> None:
        """Process a record of the journal."""
        if documents.is_progress(key):
            self._reports[key] = value
            self._count_behind()

    def _count_behind(self) -> None:
        """Count missing messages if the load is more than a tenth below its rate."""
        elapsed_s = self._clock() - self._since_s
        if elapsed_s < WINDOW_S:
            return
        acknowledged = self._total("acknowledged")
        behind = self._wanted * elapsed_s - (acknowledged - self._before)
        if behind > self._wanted * elapsed_s * SLACK:
            self._behind += round(behind)
        self._since_s, self._before = self._clock(), acknowledged

    def _total(self, field: str) -> int:
        return sum(report[field] for report in list(self._reports.values()))

    def text(self) -> str:
        """Return all metrics of the load in the text format."""
        sent, failed, acknowledged = map(self._total, ("sent", "failed", "acknowledged"))
        return "".join(
            (
                _counter(
                    "messages_produced", "Messages that the source acknowledged.", acknowledged
                ),
                _counter(
                    "bytes_produced",
                    "Bytes of the acknowledged values.",
                    acknowledged * self._size_bytes,
                ),
                _counter("message_send_errors", "Messages that were not acknowledged.", failed),
                _gauge(
                    "in_flight_message_count",
                    "Messages sent and not acknowledged yet.",
                    sent - failed - acknowledged,
                ),
                _counter(
                    "bandwidth_throttled_messages",
                    "Messages that are missing to the requested rate.",
                    self._behind,
                ),
                _gauge("producer_number_of_topics", "Topics of the load.", len(self._partitions)),
                _gauge(
                    "producer_number_of_partitions",
                    "Partitions of the topic with most partitions.",
                    max(self._partitions, default=0),
                ),
            )
        )


class SequenceCounts:
    """Counts of the messages that one consumer received, by their order.

    For each producer, topic and key, a message has the next sequence number, a repeated one, an
    older one, or one after a gap. Two counts differ from kafka-mirror-tester's.
    kafka-mirror-tester treats an older number as the latest one, so it counts a replay of 100
    messages as one old message and 99 messages in order. It also counts each gap one too high.
    """

    def __init__(self, keys: Mapping[str, int]) -> None:
        self._keys = keys
        self._latest: dict[tuple[str, bytes, int], int] = {}
        self._counts = dict.fromkeys(("messages", "bytes", "inOrder", "same", "old", "skipped"), 0)
        self._buckets = [0] * (len(BUCKETS_MS) + 1)
        self._latency_ms = 0

    def add(self, topic: str, found: Iterable[Sighting], seen_ms: int) -> None:
        """Count messages that were received from a target topic at one time."""
        keys = self._keys.get(topic)
        for sighting in found:
            latency_ms = max(0, seen_ms - sighting.timestamp_ms)
            self._counts["messages"] += 1
            self._counts["bytes"] += sighting.size_bytes
            self._latency_ms += latency_ms
            self._buckets[bisect_left(BUCKETS_MS, latency_ms)] += 1
            producer, digits = sighting.name
            if keys and digits.isdigit():
                self._follow(topic, producer, int(digits), keys)

    def _follow(self, topic: str, producer: bytes, seq: int, keys: int) -> None:
        place = (topic, producer, key_of(seq, keys))
        latest = self._latest.get(place, place[2] - keys)
        if seq <= latest:
            self._counts["same" if seq == latest else "old"] += 1
            return
        self._latest[place] = seq
        skipped = (seq - latest) // keys - 1
        self._counts["skipped"] += skipped
        self._counts["inOrder"] += not skipped

    def report(self) -> dict[str, Any]:
        """Return the counts for the journal."""
        buckets = list(accumulate(self._buckets[:-1]))
        return {**self._counts, "latencyMs": self._latency_ms, "buckets": buckets}


class ArrivalFigures:
    """Metrics of the arrival, from the probe's reports in the journal."""

    def __init__(self) -> None:
        self._reports: dict[str, Mapping[str, Any]] = {}

    def receive(self, key: str, value: Any) -> None:
        """Process a record of the journal."""
        if documents.is_seen(key):
            self._reports[key] = value

    def text(self) -> str:
        """Return all metrics of the probe in the text format."""
        reports = list(self._reports.values())

        def total(field: str) -> int:
            return sum(report[field] for report in reports)

        counters = (
            ("messages_consumed", "Messages that arrived on the target.", "messages"),
            ("bytes_consumed", "Bytes of the values that arrived.", "bytes"),
            ("in_order_message_count", "Messages with the next number of their key.", "inOrder"),
            ("same_message_count", "Messages that repeat the message before.", "same"),
            (
                "old_message_count",
                "Messages that arrived after a later one of their key.",
                "old",
            ),
            (
                "skipped_message_count",
                "Messages that were missing when a later one arrived.",
                "skipped",
            ),
        )
        name = "message_arrival_latency_hist_ms"
        bounds = [*map(str, BUCKETS_MS), "+Inf"]
        counts = [sum(r["buckets"][n] for r in reports) for n in range(len(BUCKETS_MS))]
        return "".join(
            (
                *(_counter(metric, words, total(field)) for metric, words, field in counters),
                f"# HELP {name} Latency from a message's timestamp, in ms.\n",
                f"# TYPE {name} histogram\n",
                *(
                    f'{name}_bucket{{le="{bound}"}} {count}\n'
                    for bound, count in zip(bounds, [*counts, total("messages")], strict=True)
                ),
                f"{name}_sum {total('latencyMs')}\n{name}_count {total('messages')}\n",
            )
        )


def _counter(name: str, words: str, value: int) -> str:
    return f"# HELP {name} {words}\n# TYPE {name} counter\n{name} {value}\n"


def _gauge(name: str, words: str, value: int) -> str:
    return f"# HELP {name} {words}\n# TYPE {name} gauge\n{name} {value}\n"


def at_port(port: int) -> Sink:
    """Return a sink that serves ``/metrics`` on all addresses."""
    return partial(served, "0.0.0.0", port)


def as_events() -> Sink:
    """Return a sink that prints the event ``metrics`` every half second.

    ``headrace verify`` reads these events and serves the metrics of all its jobs.
    """
    return _printed


@contextmanager
def nowhere(text: Text) -> Iterator[None]:
    """Publish nothing."""
    yield


@contextmanager
def _printed(text: Text) -> Iterator[None]:
    done = Event()

    def print_until_done() -> None:
        while not done.wait(_EVENT_S):
            event("metrics", text=text())

    thread = Thread(target=print_until_done, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        event("metrics", text=text())
