"""One partition that is fetched: from where, from whom, and whether it may be now."""

from typing import NamedTuple
from uuid import UUID

from headrace.api import TopicPartition
from headrace.kafka.wire import ClusterMetadata, FetchPosition

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
        "at",
        "checked_epoch",
        "compared_at_epoch",
        "corrupt",
        "epoch",
        "follower",
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
        self.resting = False
        """Whether it is not fetched until something else is known."""
        self.corrupt = 0
        """How often in a row what was fetched contradicted itself."""
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
            )
        return self.wanted

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
