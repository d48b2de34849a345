"""Admin client of the jobs of a mirror test, which outlasts brokers that do not respond."""

from collections.abc import Collection, Iterable

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka import Position, RightsAdmin, Topic, patiently


class PatientAdmin:
    """Reads of a ``RightsAdmin``, retried for a minute while brokers do not respond.

    A single time-out would otherwise end a test without a verdict.
    """

    def __init__(self, cluster: ClusterAccess) -> None:
        self._admin = RightsAdmin(cluster)

    def cluster_id(self) -> str:
        """Return the cluster id."""
        return patiently(self._admin.cluster_id)

    def check_comparable(self, names: Collection[str], excusing: Collection[str] = ()) -> None:
        """Raise ``GaveUp`` without the permission to read each of these topics and its settings.

        The settings of topics in ``excusing`` are not needed.
        """
        patiently(lambda: self._admin.check_comparable(names, excusing))

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic."""
        return patiently(self._admin.topics)

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the named topics that exist, with their ids."""
        wanted = tuple(names)
        return patiently(lambda: self._admin.describe(wanted))

    def topic_config(self, name: str) -> dict[str, str]:
        """Return all settings of a topic."""
        return patiently(lambda: self._admin.topic_config(name))

    def offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        """Return the named offset of each partition."""
        wanted = tuple(partitions)
        return patiently(lambda: self._admin.offsets(wanted, position))

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time in ms; -1 if there is no such record."""
        wanted = tuple(partitions)
        return patiently(lambda: self._admin.offsets_at(wanted, timestamp_ms))
