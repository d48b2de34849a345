"""Search for the broker to fetch a partition from, and check of rejected offsets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from headrace.api import TopicPartition
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    EARLIEST,
    LATEST,
    Answers,
    ClusterClient,
    Reply,
    UnsupportedBroker,
    epoch_ends,
    list_offsets,
    refusal,
    start,
)
from headrace.logs import get_logger
from headrace.movers.batch.source_partition import SourcePartition
from headrace.movers.lane import OffsetGone
from headrace.timing import Backoff

log = get_logger(__name__)

_METADATA_AGE_S = 300.0
"""The view of all topics is renewed, as Kafka's clients do (``metadata.max.age.ms``)."""


def diverged(cluster: str, source: SourcePartition, epoch: int, end: int) -> OffsetGone:
    """Return the error for a log that does not hold what was read of it.

    ``epoch`` ends at offset ``end`` there, and is the last one that both have in common.
    """
    return OffsetGone(
        source.at,
        source.position,
        f"{source.at} of {cluster}: the log was truncated at offset {end}, where its leader epoch "
        f"{epoch} ends, and filled again",
        diverged_at=end,
    )


class Locator:
    """Locator of one reader. It retries unreachable brokers until it is closed."""

    def __init__(
        self,
        cluster: ClusterClient,
        partitions: Mapping[TopicPartition, SourcePartition],
        *,
        found: Callable[[], None],
        stop: Callable[[SourcePartition, HeadraceError], None],
        away: Callable[[HeadraceError], None],
    ) -> None:
        """``partitions`` are the reader's, which change. ``stop``: one is not read any further."""
        self._cluster, self._loop, self._partitions = cluster, cluster.loop, partitions
        self._found, self._stop, self._away = found, stop, away
        self.backoff = Backoff(0.05, 1.0)
        """``reset`` it when something was fetched."""
        self._names: dict[UUID, str] = {}
        self._searching = self._closed = False
        self._next_review = self._loop.call_later(_METADATA_AGE_S, self._review)

    def close(self) -> None:
        """Stop."""
        self._closed = True
        self._next_review.cancel()  # it would hold all of the lane in memory until then

    def topic(self, topic_id: UUID | None) -> str:
        """Return the name of a topic of the reader's."""
        return "" if topic_id is None else self._names.get(topic_id, "")

    def search(self) -> None:
        """Find the leaders of those that have none; ``found`` is called when there are some."""
        if not self._searching and not self._closed:
            self._searching = True
            start(self._find_leaders()).then(self._searched)

    def compare(self, sources: Sequence[SourcePartition]) -> None:
        """Compare their logs with what was read of them, and pause them until then.

        A broker that speaks an older Fetch than version 12 does not do that by itself.
        """
        for source in sources:
            source.resting = True
        start(self._compare(sources)).then(lambda reply: reply.result())

    async def _compare(self, sources: Sequence[SourcePartition]) -> None:
        epochs = {one.at: (one.epoch, one.checked_epoch, one.position) for one in sources}
        try:
            answers = await epoch_ends(
                self._cluster, {at: checked for at, (_, checked, _) in epochs.items()}
            )
        except HeadraceError as error:
            answers = Answers({}, dict.fromkeys(epochs, error))
        for source in sources:
            epoch, checked, position = epochs[source.at]
            if (end := answers.found.get(source.at)) is None:
                self._away(answers.failed[source.at])
                source.resting = False
                source.lost_leader()
            elif end.leader_epoch < 0:  # none there is as old: retention, or truncation
                source.follower = None
                self.out_of_range(source)
            elif end.leader_epoch < checked or end.end_offset < position:
                self._stop(
                    source, diverged(self._cluster.name, source, end.leader_epoch, end.end_offset)
                )
            else:
                source.compared_at_epoch = epoch
                source.resting = False
        self.search()
        self._found()

    def out_of_range(self, source: SourcePartition) -> None:
        """Handle a broker that does not have the partition's next offset."""
        if source.follower is not None:  # it may lag behind
            source.lost_leader()
            self.search()
            return
        source.resting = True
        start(self._check_range(source)).then(lambda reply: reply.result())

    async def _check_range(self, source: SourcePartition) -> None:
        at, position = source.at, source.position
        try:
            first = await list_offsets(self._cluster, [at], EARLIEST)
            last = await list_offsets(self._cluster, [at], LATEST)
            earliest, latest = first.all()[at].offset, last.all()[at].offset
        except HeadraceError as error:
            self._away(error)
        else:
            if not earliest <= position <= latest:
                where = f"{at} of {self._cluster.name}: offset {position} is not there"
                held = f"from {earliest} to {latest - 1}" if latest > earliest else "no offsets"
                self._stop(source, OffsetGone(at, position, f"{where}, the log holds {held}"))
                return
            # The leader cannot tell where the epoch before it ends: its log begins later.
            source.checked_epoch, source.wanted = -1, None
        source.resting = False
        source.lost_leader()
        self.search()

    def _searched(self, reply: Reply[None]) -> None:
        self._searching = False
        reply.result()

    async def _find_leaders(self) -> None:
        asked: set[TopicPartition] = set()
        while not self._closed:
            all_of_them = self._partitions.values()
            lost = [one for one in all_of_them if one.node is None and not one.resting]
            if not lost:
                return
            # One that was opened just now is asked for at once.
            if any(one.epoch >= 0 or one.at in asked for one in lost):
                await self._loop.sleep(self.backoff.next_s())
            asked.update(one.at for one in lost)
            await self._refresh({one.at.topic for one in lost})

    def _review(self) -> None:
        if not self._closed:
            start(self._refresh({at.topic for at in self._partitions})).then(lambda r: r.result())
            self._next_review = self._loop.call_later(_METADATA_AGE_S, self._review)

    async def _refresh(self, topics: Iterable[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except UnsupportedBroker as error:
            for source in list(self._partitions.values()):
                self._stop(source, error)
            return
        except HeadraceError as error:
            self._away(error)
            return
        for source in list(self._partitions.values()):
            self._place(source)
        self._found()

    def _place(self, source: SourcePartition) -> None:
        view, at, name = self._cluster.view, source.at, self._cluster.name
        if source.recreated(view):
            self._stop(source, Retriable(f"topic {at.topic} of {name} was created again"))
        elif source.place(view, self._loop.now_s()):
            if source.topic_id is not None:
                self._names[source.topic_id] = at.topic
        elif (topic := view.topics.get(at.topic)) and topic.error.value:
            refused = refusal(topic.error, f"read {at} of {name}")
            if isinstance(refused, Retriable):
                log.info("no leader yet", partition=str(at), why=str(refused))
            else:
                self._stop(source, refused)
