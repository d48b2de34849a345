"""Choice of the broker to fetch each partition from, and handling of deleted offsets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.api import TopicPartition
from headrace.datapath.doubted_answers import Agreement
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
_FOLLOWED_S = 300.0
"""Time in seconds after which fetches from a follower return to the leader
(``metadata.max.age.ms``)."""


class Follower(NamedTuple):
    """Replica that is nearer than the leader (KIP-392)."""

    node: int
    until_s: float


class SourcePartition:
    """Fetch state of one partition of a lane. Used only in the loop's thread."""

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
        "uncommitted",
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
        """Create the state.

        Args:
            at: Partition of the source.
            position: Next offset to fetch.
            leader_epoch: Leader epoch of the record before ``position``; -1 if unknown.
            max_bytes: Maximum size of the partition's data in a response.
            now_s: Current time on the loop's clock.
        """
        self.at = at
        self.position = position
        self.checked_epoch = leader_epoch
        """Leader epoch of the last record read, which the broker compares with its log; -1 if
        unknown."""
        self.topic_id: UUID | None = None
        """Topic id when the partition was opened. Another id means that the topic was created
        again. None if it is not known yet, or if the cluster has no topic ids (before Kafka 2.8).
        """
        self.compared_at_epoch = -2
        """Leader epoch at which the log was last compared with the records read. It is used only
        with brokers that do not compare themselves (before Fetch version 12)."""
        self.epoch = -1
        self.node: int | None = None
        """Id of the broker to fetch from; None if it must be looked up."""
        self.follower: Follower | None = None
        self.max_bytes = max_bytes
        self.heard_s = now_s
        """Time of the last answer to a fetch of the partition, on the loop's clock."""
        self.failed_s = 0.0
        """Time of the last failure after ``heard_s``, on the loop's clock; 0 if there is none."""
        self.resting = False
        """Whether the partition is not fetched until a delay or another request has ended."""
        self.corrupt = 0
        """Number of consecutive corrupt responses."""
        self.agreement = Agreement()
        self.diverging: tuple[int, int] | None = None
        """Divergence (leader epoch and end offset) that the last answer reported. It is accepted if
        the next answer repeats it."""
        self.uncommitted = False
        """Whether the last answer lists no aborted transactions, as if uncommitted records had been
        requested. The first such answer is not accepted, and the request is repeated."""
        self.attempt = 0
        """Number of times that an answer was requested again."""
        self.wanted: FetchPosition | None = None
        """Entry for the next request; None if it must be created again."""

    def want(self) -> FetchPosition:
        """Return the entry for the next request: the same object as long as nothing changes."""
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
        """Make the next request name the partition, although its entry has not changed.

        If the last request was damaged, the broker's fetch session contains the damaged entry.
        """
        self.attempt += 1
        self.wanted = None

    def advance(self, position: int, leader_epoch: int) -> None:
        """Record that all offsets below ``position`` are read."""
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
        """Whether a leader was elected since the log was compared with the records read."""
        return self.checked_epoch >= 0 and self.compared_at_epoch != self.epoch

    def recreated(self, view: ClusterMetadata) -> bool:
        """Return whether the topic was deleted and created again since the partition was opened."""
        topic = view.topics.get(self.at.topic)
        known = self.topic_id is not None and topic is not None and topic.id is not None
        return known and topic is not None and topic.id != self.topic_id

    def follow(self, node: int, now_s: float) -> None:
        """Fetch the partition from a follower that the leader named."""
        self.follower = Follower(node, now_s + _FOLLOWED_S)
        self.node = node

    def lost_leader(self) -> None:
        """Forget the broker, which no longer leads the partition or is unreachable."""
        self.follower = self.node = None


log = get_logger(__name__)

_METADATA_AGE_S = 300.0
"""Interval in seconds at which the metadata of all topics is renewed (``metadata.max.age.ms``)."""


def diverged(cluster: str, source: SourcePartition, epoch: int, end: int) -> OffsetGone:
    """Return the error for a log that no longer contains the records read.

    ``epoch`` is the last leader epoch that the log and the records have in common. In the log, this
    epoch ends at offset ``end``.
    """
    return OffsetGone(
        source.at,
        source.position,
        f"{source.at} of {cluster}: the log was truncated at offset {end}, where its leader epoch "
        f"{epoch} ends, and filled again",
        diverged_at=end,
    )


class Locator:
    """Finds the leaders of one reader's partitions. It retries until it is closed."""

    def __init__(
        self,
        cluster: ClusterClient,
        partitions: Mapping[TopicPartition, SourcePartition],
        *,
        found: Callable[[], None],
        stop: Callable[[SourcePartition, HeadraceError], None],
        away: Callable[[HeadraceError], None],
    ) -> None:
        """Create the object.

        Args:
            cluster: The source.
            partitions: The reader's partitions; the reader adds and removes entries.
            found: Called when partitions may be fetched again.
            stop: Receives a partition that cannot be read, and the error.
            away: Receives errors of unreachable brokers.
        """
        self._cluster, self._loop, self._partitions = cluster, cluster.loop, partitions
        self._found, self._stop, self._away = found, stop, away
        self.backoff = Backoff(0.05, 1.0)
        """Delay between searches. Call its ``reset`` after a successful fetch."""
        self._names: dict[UUID, str] = {}
        self._searching = self._closed = False
        self._next_review = self._loop.call_later(_METADATA_AGE_S, self._review)

    def close(self) -> None:
        """Stop searching."""
        self._closed = True
        self._next_review.cancel()  # the timer would keep the lane in memory until then

    def topic(self, topic_id: UUID | None) -> str:
        """Return the name of a topic by its id; empty if unknown."""
        return "" if topic_id is None else self._names.get(topic_id, "")

    def search(self) -> None:
        """Find the leaders of partitions without one. ``found`` is called afterwards."""
        if not self._searching and not self._closed:
            self._searching = True
            start(self._find_leaders()).then(self._searched)

    def compare(self, sources: Sequence[SourcePartition]) -> None:
        """Compare the logs with the records that were read from them.

        The partitions are not fetched until the comparison has ended. Brokers with Fetch version 12
        compare the logs themselves, so only older brokers need this call.
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
            elif end.leader_epoch < 0:  # the log has no such epoch: retention, or truncation
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
        """Handle the error of a broker that does not have the partition's next offset."""
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
                where = f"{at} of {self._cluster.name}: offset {position} does not exist"
                held = f"from {earliest} to {latest - 1}" if latest > earliest else "no offsets"
                self._stop(source, OffsetGone(at, position, f"{where}, the log holds {held}"))
                return
            # The log begins after the last epoch that was read, so the leader cannot compare it.
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
            # Newly opened partitions are looked up without a delay.
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
