"""One consumer of the target, from before the first message until all sentinels are seen, or the
time that the mirror has is over."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark import BarrierTaskContext

from headrace.api import Partitioning
from headrace.errors import HeadraceError
from headrace.kafka import Admin, Position, assign, journal, make_consumer, make_producer
from headrace.mirror_test import Run, documents
from headrace_spark import messages
from headrace_spark.clocks import now_ms, steady_ms
from headrace_spark.crossings import Crossings, SourceWatch, names
from headrace_spark.following import Following, Taken
from headrace_spark.latency import Arrivals
from headrace_spark.live_metrics import SequenceCounts
from headrace_spark.watch_shares import Share

POLL_S = 0.5
START_S = 900.0
"""How long the load may take to begin: on Kubernetes it waits for the Job of chaos, its image
and its executors, up to 300 s each."""
QUIET_S = 10.0
"""How long a target that has more records may give none of them."""

Sentinel = tuple[str, int]
"""Topic of the target, partition of the source."""


class Watched(NamedTuple):
    """What one consumer found."""

    arrivals: Arrivals
    own: Arrivals
    """The mirror's own share."""
    late: set[Sentinel]
    """As far as it knows."""
    behind: int
    """Messages that may have waited for it, on the side where that was so of more."""


def run_watch(
    run: Run, sentinels: set[Sentinel], keys: Mapping[str, int], shares: Iterable[Share]
) -> Iterator[Watched]:
    """A Spark task."""
    number = BarrierTaskContext.get().partitionId()
    for share in shares:
        yield Watch(run, number, sentinels, share, keys).watch()


class Watch:
    """One consumer's life."""

    def __init__(
        self,
        run: Run,
        number: int,
        sentinels: set[Sentinel],
        share: Share,
        keys: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``keys``: of the topics of the target, where messages are to be counted as they come."""
        self._run = run
        self._run_name = run.name.encode()
        self._name = f"probe-{number}"
        self._tail = journal.Tail(run.source, run.name)
        self._consumer = make_consumer(run.target)
        assign(self._consumer, share.target.items())
        self._following = Following(self._consumer, run.target.alias)
        self._next = dict(share.target)
        self._not_ready = set(share.target)
        self._is_announced = False
        self._origins = {to: at for at, to in run.first_topics.items()} if share.source else {}
        self._crossings = Crossings()
        self._source = SourceWatch(run.source, run.name, share.source, self._crossings)
        self._open = set(sentinels)
        """Those that no consumer has seen."""
        self._seen: list[Sentinel] = []
        """Those that this one saw and has not reported to the others."""
        self._settle_s = run.test.spec.settle_seconds
        self._give_up_at = time.monotonic() + self._settle_s + START_S
        self._load_has_ended = False
        self._arrivals = Arrivals()
        self._counts = SequenceCounts(keys) if keys else None
        """Only where the probe serves metrics."""
        self._reporter = make_producer(run.source) if keys else None

    def watch(self) -> Watched:
        """Until every sentinel is seen, by whichever consumer, or the mirror's time is over."""
        try:
            late = self._watch()
            behind = max(self._arrivals.behind, self._source.behind)
            return Watched(self._arrivals, self._crossings.measured, late, behind)
        finally:
            self._source.close()

    def _watch(self) -> set[Sentinel]:
        exchange_at = 0.0
        while self._open and (now := time.monotonic()) < self._give_up_at:
            self._take()
            if now >= exchange_at:
                exchange_at = now + POLL_S
                self._exchange()
        knows = self._load_has_ended
        if self._run.test.spec.partitioning is not Partitioning.PRESERVED:
            # Behind the sentinels, too, there may be messages: of other partitions.
            knows &= self._reads_what_is_there()
        elif self._open:
            knows = knows and self._reads_what_is_there()
        self._exchange()
        self._consumer.close()
        self._tail.close()
        return self._open if knows else set()

    def _reads_what_is_there(self) -> bool:
        """What came in time is not late because this consumer is behind; whether it caught up."""
        try:
            ends = Admin(self._run.target).offsets(self._next, Position.LAST_STABLE)
        except HeadraceError:
            return False
        quiet_at = time.monotonic() + QUIET_S
        while any(self._next[at] < end for at, end in ends.items()):
            if self._take():
                quiet_at = time.monotonic() + QUIET_S
            elif time.monotonic() > quiet_at:
                return False
        return True

    def _take(self) -> bool:
        """Whether there was anything."""
        taken = self._following.take(0.1)
        seen_ms, steadily_ms, behind = now_ms(), steady_ms(), self._following.is_behind
        for part in taken:
            self._see(part, seen_ms, steadily_ms, behind=behind)
        return bool(taken)

    def _see(self, part: Taken, seen_ms: int, steadily_ms: int, *, behind: bool) -> None:
        """It was taken then, by both clocks; ``behind``: it may have waited for that."""
        at = part.at
        self._not_ready.discard(at)  # a record or the end: the consumer is in place there
        if at in self._next:  # errors name no partition
            self._next[at] = max(self._next[at], part.next_offset)
        found, sentinels = messages.recognise_all(part.records, self._run_name)
        sent = Counter(sighting.timestamp_ms for sighting in found)
        self._arrivals.add(sent, seen_ms, behind=behind)
        if self._counts is not None:
            self._counts.add(at.topic, found, seen_ms)
        if (topic := self._origins.get(at.topic)) is not None:
            self._crossings.on_target(names(topic, found), steadily_ms)
        for sighting in sentinels:
            # It has arrived, wherever it lies; a wrong place is the comparison's to find.
            name = self._run.topics.get(sighting.topic or "", at.topic)
            assert sighting.sentinel is not None
            self._seen.append((name, sighting.sentinel))

    def _exchange(self) -> None:
        """Report new sentinels to the other consumers; receive theirs, and the load's progress.
        Once, report that this one's consumers are in place."""
        if not (self._is_announced or self._not_ready) and self._source.is_ready:
            self._is_announced = True
            self._write(documents.ready_key(self._name), {})
        if self._seen:
            self._write(documents.sentinels_key(self._name), self._seen)
            self._open.difference_update(self._seen)
            self._seen = []
        self._report_counts()
        for key, value in self._tail.poll(0):
            if key == documents.MANIFEST_KEY:
                self._load_has_ended = True
                self._give_up_at = time.monotonic() + self._settle_s
            elif documents.is_sentinels(key):
                self._open.difference_update((topic, partition) for topic, partition in value)
            elif documents.is_progress(key):
                # While the load goes on; without a report for so long, its producers are dead.
                self._give_up_at = time.monotonic() + self._settle_s + START_S

    def _report_counts(self) -> None:
        """Without waiting for the broker: a consumer that waits measures itself."""
        if self._counts is None or self._reporter is None:
            return
        with suppress(BufferError):  # full: next time
            self._reporter.produce(
                journal.TOPIC,
                json.dumps(self._counts.report()).encode(),
                journal.record_key(self._run.name, documents.seen_key(self._name)),
                partition=0,
            )
        self._reporter.poll(0)

    def _write(self, key: str, value: Any) -> None:
        journal.write(self._run.source, self._run.name, key, json.dumps(value))
