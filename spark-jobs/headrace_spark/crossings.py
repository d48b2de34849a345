"""The mirror's own share of the latency: from a consumer of the source to one of the target.

Both run in one process, so that one clock times both: neither the producers' clock nor the brokers'
counts. What both consumers cost is left out, as far as it is the same.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Event, Lock, Thread

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka import assign, make_consumer
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
        self._source: OrderedDict[Name, int] = OrderedDict()
        self._target: OrderedDict[Name, int] = OrderedDict()

    def on_source(self, names: Iterable[Name], at_ms: int) -> None:
        """A consumer of the source got them."""
        with self._lock:
            sooner = self._match(names, self._target, self._source, at_ms)
            for seen_ms, count in Counter(sooner).items():
                # The consumer of the target was sooner: as good as no time at all.
                self.measured.add({seen_ms: count}, seen_ms)

    def on_target(self, names: Iterable[Name], at_ms: int) -> None:
        """A consumer of the target got them."""
        with self._lock:
            self.measured.add(Counter(self._match(names, self._source, self._target, at_ms)), at_ms)

    def _match(
        self,
        names: Iterable[Name],
        others: OrderedDict[Name, int],
        own: OrderedDict[Name, int],
        at_ms: int,
    ) -> list[int]:
        """When the other side saw them; those that it did not are kept."""
        found = []
        for name in names:
            seen_ms = others.pop(name, None)
            if seen_ms is None:
                own[name] = at_ms
            else:
                found.append(seen_ms)
        while len(own) > self._most:
            own.popitem(last=False)
        return found


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
                following = Following(consumer, self._cluster.alias)
                while not self._over.is_set():
                    taken = following.take(0.1)
                    at_ms, behind = self._clock(), following.is_behind
                    for part in taken:
                        self._not_ready.discard(part.at)
                        found, _ = messages.recognise_all(part.records, self._run)
                        if behind:
                            self.behind += len(found)
                        self._crossings.on_source(names(part.at.topic, found), at_ms)
            finally:
                consumer.close()
        except HeadraceError as error:
            log.warning("the mirror's own share is not measured any more", why=str(error))


def names(topic: str, found: Iterable[messages.Sighting]) -> Iterator[Name]:
    """Of the messages in a topic of the source."""
    return ((topic, *sighting.name) for sighting in found)
