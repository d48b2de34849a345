"""Fences of the record mover, with identities of librdkafka's producers."""

import threading

from support.record_mover.producer_transactions import RecordTransactions

from headrace.api import ClusterAccess
from headrace.datapath.clients import Clients
from headrace.datapath.fence import MarkerFencing
from headrace.datapath.markers import COORDINATOR_S, wait_for
from headrace.kafka.wire import Transactions
from headrace.replication import OwnerProducer, RecordChanges
from headrace.timing import Clock


class ProducerFencing(MarkerFencing):
    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        clients: Clients,
        clock: Clock,
        changes: RecordChanges | None = None,
    ) -> None:
        super().__init__(source, target, changes)
        self._clients_of_kafka, self._clock = clients, clock
        self._lock = threading.Lock()
        self._prepared: dict[str, RecordTransactions] = {}

    def identify(self, transactional_id: str) -> OwnerProducer:
        """Prepare a producer with that identity, for ``take``."""
        super().identify(transactional_id)  # names a missing permission, version or setting
        self.prepare(transactional_id)
        with self._clients() as (loop, _, target):
            # librdkafka does not return the identity. A client that has fenced this one in between
            # has the same producer id and a higher epoch: a claim with that can commit nothing.
            asked = Transactions(target, transactional_id).describe(timeout_s=COORDINATOR_S)
            found = wait_for(loop, asked, 2 * COORDINATOR_S)
        return OwnerProducer(transactional_id, found.producer_id, found.producer_epoch)

    def prepare(self, transactional_id: str) -> None:
        """Make a producer that has fenced the earlier ones of this id."""
        made = RecordTransactions(
            self._target, transactional_id, self._clients_of_kafka, self._clock
        )
        made.fence()
        with self._lock:
            self._prepared[transactional_id] = made

    def take(self, writer: OwnerProducer) -> RecordTransactions | None:
        with self._lock:
            return self._prepared.pop(writer.transactional_id, None)
