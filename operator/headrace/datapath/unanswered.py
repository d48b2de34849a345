"""Detection of partitions for which the source sends no answers."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set

from headrace.api import TopicPartition
from headrace.datapath.locate import SourcePartition
from headrace.kafka.wire import EventLoop

_INTERVAL_S = 1.0


class Silence:
    """Time since the source last answered a fetch, for each partition of a reader.

    All partitions are reviewed once a second, because a fetch session's response does not name
    partitions without new data. A partition that is not to be read counts as answered.
    """

    def __init__(
        self,
        loop: EventLoop,
        partitions: Mapping[TopicPartition, SourcePartition],
        *,
        is_asked: Callable[[SourcePartition], bool],
        readable: Callable[[Iterable[TopicPartition]], Set[TopicPartition] | None],
    ) -> None:
        """Start the review.

        Args:
            loop: Loop in whose thread the object is used.
            partitions: The reader's partitions; the reader adds and removes entries.
            is_asked: Returns True if a partition is in a pending request or search.
            readable: Returns the partitions that may be read, or None if the lane reads nothing.
        """
        self.since_s: Mapping[TopicPartition, float] = {}
        """Partitions without a recent answer, with the time of the last one on the loop's clock.
        The mapping is replaced and never modified, so any thread may read it."""
        self._loop, self._partitions = loop, partitions
        self._is_asked, self._readable = is_asked, readable
        self._heard: dict[tuple[int, int], tuple[float, Collection[TopicPartition]]] = {}
        """Time and partitions of each broker's last answer, by node and group."""
        self._reviewed_s = loop.now_s()
        self._next = loop.call_later(_INTERVAL_S, self._review)

    def heard(self, broker: tuple[int, int], partitions: Collection[TopicPartition]) -> None:
        """Record that a broker, given by node and group, answered about these partitions."""
        self._heard[broker] = self._loop.now_s(), partitions

    def close(self) -> None:
        self._next.cancel()

    def _review(self) -> None:
        now_s = self._loop.now_s()
        elapsed_s, self._reviewed_s = now_s - self._reviewed_s, now_s
        heard, self._heard = self._heard, {}
        partitions = self._partitions
        for at_s, answered in heard.values():
            for at in answered:
                if (source := partitions.get(at)) is not None and source.failed_s < at_s:
                    source.heard_s, source.failed_s = at_s, 0.0
        silent = {
            at: source
            for at, source in partitions.items()
            if now_s - source.heard_s > 2 * _INTERVAL_S
        }
        readable = self._readable(silent) if silent else set()
        if readable is None or elapsed_s > 3 * _INTERVAL_S:  # no reads, or the process froze
            for source in silent.values():
                source.heard_s += elapsed_s
        else:
            for at, source in silent.items():
                if at not in readable or not (source.failed_s or self._is_asked(source)):
                    source.heard_s = now_s
        self.since_s = {
            at: source.heard_s
            for at, source in silent.items()
            if now_s - source.heard_s > 2 * _INTERVAL_S
        }
        self._next = self._loop.call_later(_INTERVAL_S, self._review)
