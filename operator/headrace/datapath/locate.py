"""Brokers to fetch a partition from, and offsets that are gone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.api import TopicPartition
from headrace.datapath.agreement import Agreement
from headrace.datapath.lane import OffsetGone
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import (
    EARLIEST,
    LATEST,
    Answers,
    ClusterClient,
    ClusterMetadata,
    FetchPosition,
    Reply,
    UnsupportedBroker,
    epoch_ends,
    list_offsets,
    refusal,
    start,
)
from headrace.logs import get_logger
from headrace.timing import Backoff

PARTITION_BYTES = 1 << 20
"""Kafka's ``max.partition.fetch.bytes``."""
_FOLLOWED_S = 300.0
"""Time to fetch from a follower before the leader is consulted again (``metadata.max.age.ms``)."""


class Follower(NamedTuple):
    """A replica that is nearer than the leader (KIP-392)."""

    node: int
    until_s: float


class SourcePartition:
    """Partition of one lane, used by its loop's thread."""

    __slots__ = (
        "agreement",
        "at",
        "attempt",
        "checked_epoch",
        "compared_at_epoch",
        "corrupt",
        "diverging",
        "epoch",
        "failed_s",
        "follower",
        "heard_s",
        "max_bytes",
        "node",
        "position",
        "resting",
        "topic_id",
        "wanted",
    )

    def __init__(
        self,
        at: TopicPartition,
        position: int,
        leader_epoch: int,
        max_bytes: int = PARTITION_BYTES,
        *,
        now_s: float = 0.0,
    ) -> None:
        """``leader_epoch``: of the record before ``position``; -1: unknown."""
        self.at = at
        self.position = position
        self.checked_epoch = leader_epoch
        """Leader epoch of the last record read, which the broker compares; -1 if it cannot."""
        self.topic_id: UUID | None = None
        """Topic id when the partition was opened; another id is another topic. None if it is not
        known yet, or if the cluster has no topic ids (before Kafka 2.8)."""
        self.compared_at_epoch = -2
        """Leader epoch at which the log was last compared with what was read, where a broker does
        not compare by itself (before Fetch 12)."""
        self.epoch = -1
        """Epoch of the current leader."""
        self.node: int | None = None
        """That it is fetched from; ``None``: a leader has to be found."""
        self.follower: Follower | None = None
        self.max_bytes = max_bytes
        self.heard_s = now_s
        """Time of the last answer to a fetch of it, on the loop's clock."""
        self.failed_s = 0.0
        """Time of the last failure after that answer; 0: none."""
        self.resting = False
        """Whether it is not fetched until something else is known."""
        self.corrupt = 0
        """How often in a row what was fetched contradicted itself."""
        self.agreement = Agreement()
        self.diverging: tuple[int, int] | None = None
        """Divergence that one answer reported; it is believed if the next one repeats it."""
        self.attempt = 0
        """Number of times that an answer was requested again."""
        self.wanted: FetchPosition | None = None
        """Entry for its broker; None if it has changed."""

    def want(self) -> FetchPosition:
        """Return the entry for the next request; the same object as long as nothing changes."""
        if self.wanted is None:
            self.wanted = FetchPosition(
                self.topic_id,
                self.at.partition,
                self.position,
                self.max_bytes,
                self.epoch,
                self.checked_epoch,
                self.at.topic,
                self.attempt,
            )
        return self.wanted

    def again(self) -> None:
        """Have the next request name the partition, although nothing has changed.

        If the last request was damaged, the broker's session contains what it received.
        """
        self.attempt += 1
        self.wanted = None

    def advance(self, position: int, leader_epoch: int) -> None:
        """All before that offset is read."""
        if position != self.position:
            self.position, self.checked_epoch = position, leader_epoch
            self.corrupt = 0
            self.wanted = None

    def place(self, view: ClusterMetadata, now_s: float) -> bool:
        """Choose the broker to fetch from; return whether there is one."""
        leadership = view.leadership(self.at)
        topic = view.topics.get(self.at.topic)
        if leadership is None or topic is None:
            self.node = None
            return False
        if self.topic_id is None and topic.id is not None:
            self.topic_id, self.wanted = topic.id, None
        if self.epoch != leadership.epoch:
            self.epoch, self.wanted = leadership.epoch, None
        follower = self.follower
        if follower is not None and (
            follower.until_s <= now_s or follower.node not in view.brokers
        ):
            follower = self.follower = None
        self.node = leadership.leader if follower is None else follower.node
        return True

    @property
    def uncompared(self) -> bool:
        """Return True if a leader was elected since the log was compared with what was read."""
        return self.checked_epoch >= 0 and self.compared_at_epoch != self.epoch

    def recreated(self, view: ClusterMetadata) -> bool:
        """Whether the topic of that name is another one now."""
        topic = view.topics.get(self.at.topic)
        known = self.topic_id is not None and topic is not None and topic.id is not None
        return known and topic is not None and topic.id != self.topic_id

    def follow(self, node: int, now_s: float) -> None:
        """Fetch it from a follower that the leader named."""
        self.follower = Follower(node, now_s + _FOLLOWED_S)
        self.node = node

    def lost_leader(self) -> None:
        """Forget the broker, which no longer has the partition or is unreachable."""
        self.follower = self.node = None


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
            source.checked_epoch = -1
            source.again()
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
