"""The record mover of one flow."""

from collections.abc import Callable

from support.record_mover.fencing import ProducerFencing
from support.record_mover.lane import RecordLane, RecordResources
from support.record_mover.transactional_lane import TransactionalRecordLane

from headrace.api import ClusterAccess
from headrace.assign import TaskId
from headrace.datapath.bandwidth import TokenBucket
from headrace.datapath.clients import Clients
from headrace.datapath.lane import CopiedCounts
from headrace.replication import RecordChanges
from headrace.timing import Clock


class RecordMover:
    def __init__(
        self,
        source: ClusterAccess,
        target: ClusterAccess,
        target_topic: Callable[[str], str],
        clients: Clients,
        clock: Clock,
        *,
        changes: RecordChanges | None = None,
        bandwidth: TokenBucket | None = None,
        exactly_once: bool = False,
    ) -> None:
        self._resources = RecordResources(
            source, target, target_topic, clients, clock, changes, bandwidth or TokenBucket()
        )
        self._producers: ProducerFencing | None = None
        if exactly_once:
            self._producers = ProducerFencing(source, target, clients, clock, changes)
        self.fencing = self._producers
        """Fencing of producers' transactional ids.

        Outside a transaction, librdkafka sends no epoch that others can raise.
        """

    def lane(
        self, task: TaskId, on_error: Callable[[str], None], copied: CopiedCounts
    ) -> RecordLane:
        if self._producers is not None:
            return TransactionalRecordLane(self._resources, self._producers, task, on_error, copied)
        return RecordLane(self._resources, task, on_error, copied)
