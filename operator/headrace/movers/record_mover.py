"""The record mover of one flow."""

from collections.abc import Callable

from headrace.api import ClusterAccess
from headrace.assign import TaskId
from headrace.clock import Clock
from headrace.movers.bandwidth import Bandwidth
from headrace.movers.clients import Clients
from headrace.movers.lane import Copied
from headrace.movers.record import RecordLane, RecordResources
from headrace.movers.record_fencing import ProducerFencing
from headrace.movers.transactional_record import TransactionalRecordLane
from headrace.replication import RecordChanges


class RecordMover:
    """See ``Mover``. Its lanes share their bandwidth, and nothing else."""

    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        clients: Clients,
        clock: Clock,
        *,
        changes: RecordChanges | None = None,
        bandwidth: Bandwidth | None = None,
        exactly_once: bool = False,
    ) -> None:
        """``target_topic`` names topics on the target; ``changes``: to records;
        ``bandwidth``: how fast its lanes read together; ``exactly_once``: they copy in
        transactions."""
        self._resources = RecordResources(
            source, target, target_topic, clients, clock, changes, bandwidth or Bandwidth()
        )
        self._producers: ProducerFencing | None = None
        if exactly_once:
            self._producers = ProducerFencing(source, target, clients, clock, changes)
        self.fencing = self._producers
        """See ``Mover.fencing``: outside a transaction librdkafka sends nothing with an epoch that
        others can raise."""

    def lane(self, task: TaskId, on_error: Callable[[str], None], copied: Copied) -> RecordLane:
        """See ``Mover.lane``."""
        if self._producers is not None:
            return TransactionalRecordLane(self._resources, self._producers, task, on_error, copied)
        return RecordLane(self._resources, task, on_error, copied)
