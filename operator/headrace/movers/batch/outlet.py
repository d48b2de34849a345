"""Connections to the target's brokers, by which the lanes of a mover send."""

from headrace.api import ClusterAccess
from headrace.kafka import Renewal
from headrace.kafka.wire import ClusterClient
from headrace.movers.batch.leader import Leaders
from headrace.movers.batch.loop_thread import LoopThread


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
