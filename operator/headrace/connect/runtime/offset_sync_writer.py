"""Writer of offset syncs to their topic, for all source tasks of a driver."""

import threading
from collections import deque
from contextlib import suppress

from headrace.api import ClusterAccess, TopicPartition
from headrace.datapath import Clients
from headrace.errors import HeadraceError
from headrace.kafka import (
    Admin,
    KafkaError,
    ReloadingClient,
    ensure_topic,
    translate,
)
from headrace.logs import get_logger
from headrace.replication import STRETCH, OffsetPair, OffsetSync

MIN_COMPACTION_LAG_MS = 86_400_000
"""Time for which offset syncs are not compacted, in ms. A checkpoint task that starts again finds
all offset syncs of this time."""
_SYNCS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(MIN_COMPACTION_LAG_MS),
    "segment.bytes": str(64 << 20),  # the default of 1 GiB would delay compaction for a week
}
AS_MIRROR_MAKER = "as MirrorMaker 2 makes it"
"""Reason why the topic has one partition, for messages."""


def ensure_offset_syncs_topic(admin: Admin, topic: str) -> None:
    """Create the topic if it is missing. Raise the errors of ``ensure_topic``."""
    ensure_topic(admin, topic, 1, _SYNCS, because=AS_MIRROR_MAKER)


log = get_logger(__name__)

_MAX_WAITING = 10_000
"""Maximum number of offset syncs that wait for the topic. Above it, the oldest are dropped."""
_FLUSH_S = 0.5


class OffsetSyncWriter:
    """Writer of offset syncs. Thread-safe.

    Only ``prepare`` waits or raises errors, because records are copied even without offset syncs.
    """

    def __init__(self, topic: str, cluster: ClusterAccess, clients: Clients) -> None:
        """Create a writer; ``cluster`` contains the topic."""
        self.topic = topic
        self._cluster = cluster
        self._admin = clients.admin(cluster)
        settings = {"partitioner": "murmur2", "linger.ms": 50}
        self._producer = ReloadingClient(cluster, lambda: clients.producer(cluster, settings))
        self._waiting: deque[tuple[OffsetSync, str]] = deque()
        self._sending = threading.Lock()
        self.ready = False
        """Whether the topic exists."""
        self.problem = ""
        """Reason why offset syncs are not written, as a sentence; empty if they are."""
        self.sent = self.answered = 0
        """``sent`` is the number of offset syncs that were passed to ``send``. ``answered`` is the
        number of offset syncs whose outcome is known. Outcomes arrive in the order of ``send``."""
        self.refused = 0
        """Number of offset syncs that the brokers rejected. The callers of ``send`` must send them
        again."""

    def prepare(self) -> None:
        """Create the topic if it is missing, and the producer.

        Raises:
            HeadraceError: The topic or the producer could not be created.
        """
        try:
            self._producer.get()  # it provides the cluster id with which brokers are compared
            ensure_offset_syncs_topic(self._admin, self.topic)
        except HeadraceError as error:
            self._failed(str(error))
            raise
        self.ready, self.problem = True, ""

    def send(self, at: TopicPartition, pair: OffsetPair) -> None:
        """Queue an offset sync of a partition."""
        with self._sending:
            if len(self._waiting) == _MAX_WAITING:
                self._waiting.popleft()
                self.answered += 1
            self._waiting.append((OffsetSync(at.topic, at.partition, *pair.offsets), pair.stretch))
            self.sent += 1

    def poll(self) -> None:
        """Send queued offset syncs, and receive acknowledgements."""
        if not self.ready:
            return
        try:
            with self._sending:
                producer = self._producer.get()
                producer.poll(0)
                while self._waiting:
                    sync, contiguity_id = self._waiting[0]
                    producer.produce(
                        self.topic,
                        sync.value(),
                        sync.key(),
                        0,
                        on_delivery=self._delivered,
                        headers=[(STRETCH, contiguity_id.encode())],
                    )
                    self._waiting.popleft()
        except BufferError:
            self._failed(f"{self._tried}: {self._cluster.name} does not take them")
        except HeadraceError as error:
            self._failed(str(error))

    def close(self) -> None:
        """Send the remaining offset syncs, and wait for half a second at most.

        If the topic is not known to exist, create it first.
        """
        if self._waiting and not self.ready:  # a driver that ends right after its start
            with suppress(HeadraceError):
                self.prepare()
        self.flush(_FLUSH_S)

    def flush(self, within_s: float) -> None:
        """Send the remaining offset syncs, and wait for ``within_s`` at most."""
        self.poll()
        if self.ready:
            try:
                if left := self._producer.get().flush(within_s):
                    log.warning("offset syncs not written at the end", syncs=left)
            except HeadraceError as error:
                log.info("offset syncs not written at the end", why=str(error))

    @property
    def _tried(self) -> str:
        return f"write offset syncs to topic {self.topic} on {self._cluster.name}"

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        self.answered += 1
        if error is not None:
            self.refused += 1
            self._failed(str(translate(error, self._tried)))
        else:
            self.problem = ""

    def _failed(self, why: str) -> None:
        if why != self.problem:
            log.warning("offset syncs not written", why=why)
        self.problem = why
