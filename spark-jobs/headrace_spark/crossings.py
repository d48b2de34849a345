"""The mirror's own share of the latency: from a consumer of the source to one of the target.

Both run in one process, so that one clock times both: neither the producers' clock nor the brokers'
counts. What both consumers cost is left out, as far as it is the same.
"""

from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka import Message, assign, journal, make_consumer
from headrace.logs import get_logger
from headrace_spark import messages
from headrace_spark.clocks import steady_ms
from headrace_spark.following import Following
from headrace_spark.latency import Arrivals

log = get_logger(__name__)

MOST = 200_000
"""Messages seen on one side only that are kept: 50 MB. Beyond, the oldest are forgotten, and not
measured; so are repetitions, which have no second message on the source."""

Name = tuple[str, bytes, bytes]
"""The source's topic, producer and number of a message."""
Clock = Callable[[], int]
"""In ms."""


class Crossings:
    """Messages seen on one side, until they are on the other."""

    def __init__(self, most: int = MOST) -> None:
        self.measured = Arrivals()
        self._most = most
        self._lock = Lock()
        self._source: dict[Name, int] = {}
        self._target: dict[Name, int] = {}

    def on_source(self, name: Name, at_ms: int) -> None:
        """A consumer of the source got it."""
        with self._lock:
            seen_ms = self._target.pop(name, None)
            if seen_ms is None:
                self._keep(self._source, name, at_ms)
            else:  # the consumer of the target was sooner: as good as no time at all
                self.measured.add(seen_ms, seen_ms)

    def on_target(self, name: Name, at_ms: int) -> None:
        """A consumer of the target got it."""
        with self._lock:
            since_ms = self._source.pop(name, None)
            if since_ms is None:
                self._keep(self._target, name, at_ms)
            else:
                self.measured.add(since_ms, at_ms)

    def _keep(self, side: dict[Name, int], name: Name, at_ms: int) -> None:
        side[name] = at_ms
        if len(side) > self._most:
            del side[next(iter(side))]


class SourceWatch:
    """A thread that consumes partitions of the source; an error ends it, and is only logged: all
    that it can spoil is a figure."""

    def __init__(
        self,
        cluster: ClusterAccess,
        run: str,
        starts: Mapping[TopicPartition, int],
        crossings: Crossings,
        clock: Clock = steady_ms,
    ) -> None:
        self._cluster, self._run = cluster, run.encode()
        self._starts, self._crossings, self._clock = dict(starts), crossings, clock
        self._not_ready = set(starts)
        self.behind = 0
        """Messages that may have waited for it."""
        self._over = Event()
        self._thread = Thread(target=self._watch, name="watching the source", daemon=True)
        if starts:
            self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether the consumer is in place in every partition, or never will be."""
        return not self._not_ready or not self._thread.is_alive()

    def close(self) -> None:
        """End it."""
        self._over.set()
        if self._starts:
            self._thread.join()

    def _watch(self) -> None:
        try:
            consumer = make_consumer(self._cluster)
            try:
                assign(consumer, self._starts.items())
                following = Following(consumer)
                while not self._over.is_set():
                    taken = following.take(0.1)
                    at_ms = self._clock()
                    if following.is_behind:
                        self.behind += len(taken)
                    for message in taken:
                        self._see(message, at_ms)
            finally:
                consumer.close()
        except HeadraceError as error:
            log.warning("the mirror's own share is not measured any more", why=str(error))

    def _see(self, message: Message, at_ms: int) -> None:
        at = TopicPartition(message.topic() or "", message.partition() or 0)
        self._not_ready.discard(at)  # a record, or the end
        if not journal.is_record(message, f"read {at} of {self._cluster.alias}"):
            return
        sighting = messages.recognise(message, self._run)
        if sighting is not None and sighting.sentinel is None:
            self._crossings.on_source((at.topic, *sighting.name), at_ms)
