"""Resources that the lanes of a flow's batch mover share."""

import threading
from collections.abc import Callable

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.client_settings import Compression
from headrace.api.flow import BatchVerification
from headrace.api.offsets import GapPolicy
from headrace.errors import Fatal
from headrace.kafka.wire import ProducerIdentity
from headrace.movers.bandwidth import TokenBucket
from headrace.movers.batch.loop_thread import LoopThread
from headrace.movers.batch.outlet import Outlet
from headrace.movers.batch.topic_changes import TopicChanges
from headrace.replication import RecordChanges


class LaneResources:
    """Clusters, settings, the connections to the target, and which epochs are spent."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        thread: Callable[[], LoopThread],
        verification: Callable[[], BatchVerification],
        *,
        bandwidth: TokenBucket,
        exactly_once: bool,
        holes: GapPolicy,
        records: RecordChanges | None,
        compression: Compression,
    ) -> None:
        """Accept what the flow's spec says.

        ``target_topic`` returns a topic's name on the target. ``verification`` returns the present
        setting. With ``exactly_once``, lanes copy in transactions. ``holes`` is how lanes with
        preserved offsets fill holes. ``records`` are the changes to records.
        """
        self.source, self.target = source, target
        self.target_topic = target_topic
        self.thread = thread
        self.verification, self.bandwidth = verification, bandwidth
        self.exactly_once, self.holes = exactly_once, holes
        self._records, self._compression = records, compression
        self._changes: dict[str, TopicChanges] = {}
        self.rack = source.spec.config.get("client.rack", "")
        self.corrupt: dict[TopicPartition, int] = {}
        """Source offsets of batches that came damaged once."""
        self._begun: dict[TopicPartition, ProducerIdentity] = {}
        self._lock = threading.Lock()
        self._outlet: Outlet | None = None

    def changes(self, topic: str) -> TopicChanges:
        """Return the changes to the batches of a topic. The result is kept."""
        if (found := self._changes.get(topic)) is None:
            found = TopicChanges.of(topic, self._records, self._compression)
            self._changes[topic] = found
        return found

    def begin(self, at: TopicPartition, identity: ProducerIdentity) -> None:
        """Record that a partition of the target is written with an epoch, which serves only once.

        A second lane would begin with sequence 0 again. Brokers would take its batch for one that
        they have, and it would be lost.
        """
        with self._lock:
            if self._begun.get(at) == identity:
                raise Fatal(f"internal error: {at} would be written with {identity} again")
            self._begun[at] = identity

    def outlet(self, thread: LoopThread) -> Outlet:
        """Return the outlet to the target, shared with other lanes, with current credentials.

        The caller must release it.
        """
        with self._lock:
            if self._outlet is None or self._outlet.outdated:
                self._outlet = Outlet(thread, self.target)
            self._outlet.users += 1
            return self._outlet

    def release(self, outlet: Outlet) -> None:
        """Release an outlet that a lane no longer needs; call it in the thread of its loop."""
        with self._lock:
            outlet.users -= 1
            if outlet.users:
                return
            if outlet is self._outlet:
                self._outlet = None
        outlet.close()
