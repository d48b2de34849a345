"""Admin client of the jobs of a mirror test, which outlasts brokers that do not respond."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import Retriable
from headrace.kafka import Admin, Position, Topic

RETRIED_S = 60.0
"""Time for which a read is retried. A broker that restarts, or a leader that moves, needs less."""
_POLL_S = 1.0
T = TypeVar("T")


class PatientAdmin:
    """Reads of an ``Admin``, retried for ``RETRIED_S`` while brokers do not respond.

    A single time-out would otherwise end a test without a verdict. The last attempt may begin at
    the end of that time. If it fails, its ``Retriable`` is raised.
    """

    def __init__(self, cluster: ClusterAccess) -> None:
        self._admin = Admin(cluster)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic."""
        return _patiently(self._admin.topics)

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the named topics that exist, with their ids."""
        wanted = tuple(names)
        return _patiently(lambda: self._admin.describe(wanted))

    def topic_config(self, name: str) -> dict[str, str]:
        """Return all settings of a topic."""
        return _patiently(lambda: self._admin.topic_config(name))

    def offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        """Return the named offset of each partition."""
        wanted = tuple(partitions)
        return _patiently(lambda: self._admin.offsets(wanted, position))

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time in ms; -1 if there is no such record."""
        wanted = tuple(partitions)
        return _patiently(lambda: self._admin.offsets_at(wanted, timestamp_ms))


def _patiently(ask: Callable[[], T]) -> T:
    deadline_s = time.monotonic() + RETRIED_S
    while True:
        try:
            return ask()
        except Retriable:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_POLL_S)
