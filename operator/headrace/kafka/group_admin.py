"""Consumer groups of a cluster: which there are, and what they have committed."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions

from headrace.api import TopicPartition
from headrace.errors import HeadraceError
from headrace.kafka.cluster_admin import ClusterAdmin
from headrace.kafka.errors import translate
from headrace.kafka.wire import protocol_types

_READ, _SET = "read the committed offsets", "set the committed offsets"
_WITH_MEMBERS = {
    ConsumerGroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
}


class Committed(NamedTuple):
    """What a consumer group has committed for a partition."""

    offset: int
    metadata: str


class GroupAdmin(ClusterAdmin):
    """Blocking calls as ``ClusterAdmin``'s."""

    def groups(self, *, active: bool = False) -> set[str]:
        """The consumer groups that the principal may describe; ``active``: those with members."""
        client = self._requests.client
        tried = f"list the consumer groups of {self.name}"
        states = {"states": _WITH_MEMBERS} if active else {}
        future = self._requests.call(
            tried, lambda: client.list_consumer_groups(request_timeout=self._timeout_s, **states)
        )
        found = self._requests.result(tried, future)
        if found.errors:
            raise self._requests.failed(found.errors[0], tried)
        return {group.group_id for group in found.valid}

    def protocol_types(self) -> dict[str, str]:
        """The groups that the principal may describe, of any kind: ``consumer``, ``share``,
        ``streams``, ``connect``; empty for offsets without a protocol. ``groups`` has those of
        ``consumer`` and without a protocol only."""
        return self._on_wire(protocol_types)

    def has_members(self, group: str) -> bool:
        """Whether a group of any kind, as one of Connect's workers, has members; ``False`` of one
        that is not there, or that the principal may not describe."""
        client = self._requests.client
        tried = f"describe group {group} of {self.name}"
        found = self._requests.call(
            tried, lambda: client.list_groups(group, timeout=self._timeout_s)
        )
        return any(one.members for one in found)

    def committed(
        self, groups: Iterable[str]
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, HeadraceError]]:
        """What these groups have committed, of each topic that the principal may describe; and why
        that of some groups cannot be read."""
        client = self._requests.client
        wanted = map(ConsumerGroupTopicPartitions, sorted(set(groups)))
        answers, refused = self._of_groups(_READ, client.list_consumer_group_offsets, wanted)
        found = {
            group: {
                TopicPartition(at.topic, at.partition): Committed(at.offset, at.metadata or "")
                for at in answer.topic_partitions
                if at.error is None and at.offset >= 0
            }
            for group, answer in answers.items()
        }
        return found, refused

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> dict[str, HeadraceError]:
        """Set what these groups have committed; why some could not be set, all of it or a part:
        ``GroupActive`` of those that have members."""
        client = self._requests.client
        wanted = [
            ConsumerGroupTopicPartitions(
                group,
                [
                    confluent_kafka.TopicPartition(*at, one.offset, metadata=one.metadata)
                    for at, one in positions.items()
                ],
            )
            for group, positions in sorted(offsets.items())
        ]
        answers, failed = self._of_groups(_SET, client.alter_consumer_group_offsets, wanted)
        for group, answer in answers.items():
            for at in answer.topic_partitions:
                if at.error is not None:
                    tried = f"{self._of_group(_SET, group)} for {at.topic}/{at.partition}"
                    failed[group] = translate(at.error, tried)
        return failed

    def _of_groups(
        self,
        what: str,
        request: Callable[..., Mapping[str, "Future[Any]"]],
        groups: Iterable[ConsumerGroupTopicPartitions],
    ) -> tuple[dict[str, Any], dict[str, HeadraceError]]:
        """The answer about each group, and why there is none about some. The client takes one
        group a request; all requests are sent before the first answer is awaited."""
        asked = {}
        for group in groups:
            id = group.group_id
            call = partial(request, [group], request_timeout=self._timeout_s)
            asked[id] = self._requests.call(self._of_group(what, id), call)[id]
        answers: dict[str, Any] = {}
        failed: dict[str, HeadraceError] = {}
        for id, future in asked.items():
            try:
                answers[id] = self._requests.result(self._of_group(what, id), future)
            except HeadraceError as error:
                failed[id] = error
        return answers, failed

    def _of_group(self, what: str, group: str) -> str:
        return f"{what} of group {group} of {self.name}"
