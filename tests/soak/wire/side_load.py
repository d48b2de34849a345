"""Records of aborted transactions, which no flow may copy, and groups that advance."""

import itertools
import threading
from collections.abc import Mapping

from support.flows import spec
from support.groups import commit

from headrace.kafka import make_producer
from headrace.sandbox import SandboxCluster

_EVERY_S, _RECORDS, _ANSWER_S = 0.5, 3, 60.0
_ROUNDS = 8
"""Transactions between two commits of the groups."""


def group_of(topic: str) -> str:
    """Return the name of the group that reads a topic."""
    return f"readers-of-{topic}"


class SideLoad:
    """Aborts transactions with records in all partitions, and commits offsets, until ``stop``."""

    def __init__(
        self,
        cluster: SandboxCluster,
        topics: Mapping[str, int],
        acknowledged: Mapping[tuple[str, int], int],
    ) -> None:
        """Prepare the load. The group of a topic commits its numbers of acknowledged records."""
        self._cluster, self._topics, self._acknowledged = cluster, topics, acknowledged
        self._partitions = [(name, n) for name, count in topics.items() for n in range(count)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="side load", daemon=True)
        self.problem = ""
        """A sentence if the load ended early."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            producer = make_producer(spec(self._cluster), {"transactional.id": "soak-aborted"})
            producer.init_transactions(_ANSWER_S)
            for round in itertools.count():
                if self._stop.wait(_EVERY_S):
                    break
                producer.begin_transaction()
                for topic, partition in self._partitions * _RECORDS:
                    producer.produce(topic, b"aborted", partition=partition)
                producer.flush(_ANSWER_S)
                producer.abort_transaction(_ANSWER_S)
                if round % _ROUNDS == 0:
                    self._commit()
        except Exception as error:  # noqa: BLE001 - a thread's errors are told by the verdict
            self.problem = f"the side load ended: {error!r}"

    def _commit(self) -> None:
        for topic, partitions in self._topics.items():
            offsets = {number: self._acknowledged[topic, number] for number in range(partitions)}
            commit(self._cluster, group_of(topic), topic, offsets)
