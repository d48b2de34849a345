"""Faults of one cluster's brokers, one at a time: at least its data survives all of them."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from soak.faults import FaultJournal, FaultKind
from soak.hazards import Inflict
from soak.stage import BROKERS

from headrace.errors import GaveUp
from headrace.sandbox import BrokerProcess, SandboxCluster

KILLED_S, FROZEN_S, LEADERLESS_S, TWO_KILLED_S = (2, 10), (4, 20), (12, 25), (2, 8)
_ASK_S = 10
_STARTS = 3
"""A busy machine may take longer than a broker's own time for a start."""


class BrokerFaults:
    """Faults of one cluster."""

    def __init__(self, cluster: SandboxCluster, journal: FaultJournal, progress: str = "") -> None:
        """Prepare the faults; ``progress`` is the progress topic that the cluster holds."""
        self._cluster, self._journal, self._progress = cluster, journal, progress

    def deck(self) -> list[tuple[FaultKind, Inflict]]:
        """Return the faults that the cluster allows."""
        deck: list[tuple[FaultKind, Inflict]] = [
            (FaultKind.BROKER_KILLED, self._kill),
            (FaultKind.BROKER_FROZEN, self._freeze),
            (FaultKind.CLUSTER_ROLLED, self._roll),
            (FaultKind.LEADERLESS, self._stop_for_long),
            (FaultKind.TWO_BROKERS_KILLED, self._kill_two),
        ]
        if self._progress:
            deck.append((FaultKind.PROGRESS_LEADER_KILLED, self._kill_progress_leader))
        return deck

    def whole(self) -> bool:
        """Return whether every partition has all its replicas in sync."""
        client = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers})
        try:
            topics = client.list_topics(timeout=_ASK_S).topics.values()
        except KafkaException:
            return False
        partitions = [one for topic in topics for one in topic.partitions.values()]
        return all(one.leader > 0 and len(one.isrs) == len(one.replicas) for one in partitions)

    def _kill(self, chance: random.Random, stop: threading.Event) -> None:
        broker = chance.choice(self._cluster.brokers)
        with self._away(FaultKind.BROKER_KILLED, [broker], BrokerProcess.kill):
            stop.wait(chance.uniform(*KILLED_S))

    def _freeze(self, chance: random.Random, stop: threading.Event) -> None:
        broker = chance.choice(self._cluster.brokers)
        with self._journal.fault(FaultKind.BROKER_FROZEN, str(broker)):
            broker.freeze()
            try:
                stop.wait(chance.uniform(*FROZEN_S))
            finally:
                broker.thaw()

    def _roll(self, chance: random.Random, stop: threading.Event) -> None:
        brokers = chance.sample(self._cluster.brokers, BROKERS)
        with self._journal.fault(FaultKind.CLUSTER_ROLLED, f"cluster {self._cluster.name}"):
            for broker in brokers:
                if not stop.is_set():
                    broker.stop()
                    _start([broker])

    def _stop_for_long(self, chance: random.Random, stop: threading.Event) -> None:
        """Stop a broker, and leave its partitions leaderless for longer than tasks' time-outs."""
        broker = chance.choice(self._cluster.brokers)
        with self._away(FaultKind.LEADERLESS, [broker], BrokerProcess.stop):
            stop.wait(chance.uniform(*LEADERLESS_S))

    def _kill_two(self, chance: random.Random, stop: threading.Event) -> None:
        """Kill two brokers.

        The cluster has no controller then, two partitions lack a leader, the others enough
        replicas.
        """
        brokers = chance.sample(self._cluster.brokers, 2)
        with self._away(FaultKind.TWO_BROKERS_KILLED, brokers, BrokerProcess.kill):
            stop.wait(chance.uniform(*TWO_KILLED_S))

    def _kill_progress_leader(self, chance: random.Random, stop: threading.Event) -> None:
        client = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers})
        partitions = client.list_topics(self._progress, timeout=20).topics[self._progress]
        leaders = [partitions.partitions[n].leader for n in sorted(partitions.partitions)]
        broker = self._cluster.broker(max(1, chance.choice(leaders)))
        with self._away(FaultKind.PROGRESS_LEADER_KILLED, [broker], BrokerProcess.kill):
            stop.wait(chance.uniform(*KILLED_S))

    @contextmanager
    def _away(
        self,
        kind: FaultKind,
        brokers: Sequence[BrokerProcess],
        end: Callable[[BrokerProcess], None],
    ) -> Iterator[None]:
        """End brokers for the block, and start them when the fault is over."""
        with self._journal.fault(kind, " and ".join(map(str, brokers))):
            try:
                for broker in brokers:
                    end(broker)
                yield
            finally:
                _start(brokers)


def _start(brokers: Sequence[BrokerProcess]) -> None:
    for broker in brokers:
        broker.launch()
    for attempt in range(1, _STARTS + 1):
        try:
            for broker in brokers:
                broker.wait_until_up()
            return
        except GaveUp:
            if attempt == _STARTS:
                raise
