"""Resources that the lanes of a mover share: the loop's thread and connections."""

import os
import threading
from collections.abc import Callable

from headrace.api import ClusterAccess, TopicPartition
from headrace.api.client_settings import Compression
from headrace.api.flow import BatchVerification
from headrace.api.offsets import GapPolicy
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.chunk import Joiner, Memory
from headrace.datapath.producer import Leaders
from headrace.datapath.rebuild import TopicChanges
from headrace.errors import Fatal
from headrace.kafka import Renewal
from headrace.kafka.wire import Buffers, ClusterClient, EventLoop, ProducerIdentity, Scanner
from headrace.logs import get_logger
from headrace.replication import RecordChanges

log = get_logger(__name__)

_KEPT_BYTES = 40 << 20
"""Maximum size of kept buffers, including buffers in use: more than lanes may hold."""
_TRIM_S = 10.0


class LoopThread:
    """A loop that runs until the process ends, and what its lanes share."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.buffers = Buffers(_KEPT_BYTES)
        self.memory = Memory()
        self.joiner = Joiner(self.buffers, self.memory, self.loop.now_s)
        self.scanner = Scanner()
        threading.Thread(target=self._run, name="headrace-batches", daemon=True).start()

    def _trim(self) -> None:
        self.buffers.trim()
        self.loop.call_later(_TRIM_S, self._trim)

    def _run(self) -> None:
        try:
            self._trim()
            while True:
                self.loop.run_once(60.0)
        except Exception:
            # Lanes without a loop would look alive. The driver must end visibly.
            log.exception("internal error, the driver ends: please report it")
            os._exit(1)


_making = threading.Lock()
_shared: list[LoopThread] = []


def shared_loop() -> LoopThread:
    """Return the thread of this process; the first lane starts it."""
    with _making:
        if not _shared:
            _shared.append(LoopThread())
        return _shared[0]


class Outlet:
    """Shared connections, closed by the last lane that uses them.

    Lanes that are created after a change of secrets get another outlet.
    """

    def __init__(self, thread: LoopThread, target: ClusterAccess) -> None:
        self.users = 0
        self._renewal = Renewal(target)
        self.cluster = ClusterClient(thread.loop, target, buffers=thread.buffers)
        self.leaders = Leaders(self.cluster)

    @property
    def outdated(self) -> bool:
        """Whether passwords or certificates have changed since it was made."""
        return self._renewal.due

    def close(self) -> None:
        """End the connections."""
        self.leaders.close()
        self.cluster.close()


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
