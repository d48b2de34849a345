"""Topics of a cluster: their partitions and racks; made, grown, deleted."""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from headrace.api import TopicPartition
from headrace.errors import Retriable
from headrace.kafka.cluster_admin import ClusterAdmin
from headrace.kafka.errors import code_of
from headrace.kafka.racks import read_racks

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Id of each topic of a cluster without topic ids (before Kafka 2.8), as the client writes it."""


def replaced(known_id: str, found_id: str) -> bool:
    """Return True if the ids are those of two topics.

    Ids are not comparable where one is missing: before Kafka 2.8, and for a topic whose cluster was
    upgraded since.
    """
    return known_id != found_id and NO_TOPIC_ID not in (known_id, found_id)


class Topic(NamedTuple):
    """A topic as a cluster knows it; ``topic_id`` changes when it is deleted and made again."""

    name: str
    partitions: int
    topic_id: str
    leaderless: frozenset[int] = frozenset()
    """Its partitions that have no leader at the moment."""


class TopicAdmin(ClusterAdmin):
    """Blocking calls as ``ClusterAdmin``'s."""

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the named topics that exist, with their ids."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        client = self._requests.client
        tried = f"describe topics of {self.name}"
        futures = self._requests.call(
            tried,
            lambda: client.describe_topics(
                TopicCollection(wanted), request_timeout=self._timeout_s
            ),
        )
        found = {}
        for name, future in futures.items():
            try:
                described = self._requests.result(f"describe topic {name} of {self.name}", future)
            except Retriable as error:
                if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            there = described.partitions
            leaderless = frozenset(one.id for one in there if one.leader is None)
            found[name] = Topic(name, len(there), str(described.topic_id), leaderless)
        return found

    def racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        """In which racks each partition of ``topics`` can be read (``read_racks``)."""
        return read_racks(self._requests, self._timeout_s, self.name, topics)

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a topic; ``False`` when it was there already. -1 is the broker's default factor."""
        client = self._requests.client
        tried = f"create topic {name} with {partitions} partitions on {self.name}"
        new = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        return self._created(tried, name, lambda: client.create_topics([new], **self._timeouts()))

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        client = self._requests.client
        tried = f"grow topic {name} to {total} partitions on {self.name}"
        self._created(
            tried,
            name,
            lambda: client.create_partitions([NewPartitions(name, total)], **self._timeouts()),
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic, for ``spec.topicDeletion`` and `headrace flow rebuild`."""
        client = self._requests.client
        tried = f"delete topic {name} on {self.name}"
        futures = self._requests.call(
            tried, lambda: client.delete_topics([name], **self._timeouts())
        )
        self._requests.result(tried, futures[name])

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records before these offsets, each at most the high watermark."""
        client = self._requests.client
        tried = f"delete records of {self.name}"
        wanted = [KafkaPartition(at.topic, at.partition, offset) for at, offset in before.items()]
        futures = self._requests.call(
            tried, lambda: client.delete_records(wanted, **self._timeouts())
        )
        for at, future in futures.items():
            what = f"delete the records of {at.topic}-{at.partition} on {self.name}"
            self._requests.result(what, future)

    def _created(
        self, tried: str, name: str, call: Callable[[], Mapping[str, "Future[Any]"]]
    ) -> bool:
        try:
            self._requests.result(tried, self._requests.call(tried, call)[name])
            self._requests.served = True
        except Retriable as error:
            if code_of(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def _timeouts(self) -> dict[str, float]:
        return {"operation_timeout": self._timeout_s, "request_timeout": self._timeout_s}
