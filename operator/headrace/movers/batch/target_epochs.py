"""Under which leader epoch the target held what it has acknowledged: for who takes over later.

An answer to Produce does not name the epoch, and what a client believes may be an earlier one: then
an election would look like a loss. So the leaders are asked, a second after they have acknowledged
something, with an epoch that they confirm to be the current one.
"""

from collections.abc import Callable, Mapping
from functools import partial

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.wire import Answers, ClusterClient, EpochEnd, Reply, log_ends, start
from headrace.logs import get_logger
from headrace.movers.lane import TargetLoss
from headrace.replication import TargetSeen

log = get_logger(__name__)

_INTERVAL_S = 1.0
_WITHIN_S = 5.0

Offsets = Mapping[TopicPartition, int]


class TargetEpochs:
    """Leader epochs of the target's partitions, used in the thread of the cluster's loop."""

    def __init__(
        self,
        cluster: ClusterClient,
        unseen: Callable[[], Offsets],
        seen: Callable[[TopicPartition, TargetSeen], None],
        lost: Callable[[TopicPartition, TargetLoss], None],
    ) -> None:
        """Create the object.

        Args:
            cluster: The target.
            unseen: Returns the ends of acknowledged records, of partitions whose ends ``seen``
                lacks.
            seen: Receives ends that were confirmed by the leader's epoch.
            lost: Receives partitions whose leader does not have all acknowledged records.
        """
        self._cluster, self._unseen, self._seen, self._lost = cluster, unseen, seen, lost
        self._due = self._closed = False

    def delivered(self) -> None:
        """Something was acknowledged."""
        if not self._due and not self._closed:
            self._due = True
            self._cluster.loop.call_later(_INTERVAL_S, self._ask)

    def close(self) -> None:
        """Ask nothing more."""
        self._closed = True

    def _ask(self) -> None:
        unseen = {} if self._closed else dict(self._unseen())
        if not unseen:
            self._due = False
            return
        asked = start(log_ends(self._cluster, unseen, timeout_s=_WITHIN_S))
        asked.then(partial(self._answered, unseen))

    def _answered(self, unseen: Offsets, reply: Reply[Answers[EpochEnd]]) -> None:
        self._due = False
        if self._closed:
            return
        if isinstance(reply.error, HeadraceError):  # who appends reports what is wrong
            log.debug("leader epochs of the target are not known", why=str(reply.error))
            return
        for at, end in reply.result().found.items():
            offset = unseen[at]
            if end.end_offset < offset:
                self._lost(at, TargetLoss(at, end.end_offset, offset))
            else:
                self._seen(at, TargetSeen(offset, end.leader_epoch))
        if self._unseen():
            self.delivered()
