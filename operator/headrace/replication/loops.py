"""Records that two flows in opposite directions would copy round and round. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.replication.filters import TopicFilter
from headrace.replication.policy import ReplicationPolicy

_LONGEST_NAME = 249
"""Of a topic (``org.apache.kafka.common.internals.Topic``): one that gets a prefix in each round
comes back until then."""


class Direction(NamedTuple):
    """What a flow copies, in which names."""

    topics: TopicFilter
    policy: ReplicationPolicy


class Loop(NamedTuple):
    """A topic of the first flow's source that comes back as one that the flow copies, for ever."""

    topic: str
    there: str
    """Its name on the target."""
    back: str
    """The name of that one's copy."""


def find_loop(there: Direction, back: Direction, topics: Iterable[str]) -> Loop | None:
    """The first of ``topics``, of the source of ``there``, that goes round."""
    return next((found for topic in topics if (found := _loop(there, back, topic))), None)


def _loop(there: Direction, back: Direction, topic: str) -> Loop | None:
    seen, first = set[str](), None
    while there.topics.matches(topic):
        copy = there.policy.target_topic(topic)
        if not back.topics.matches(copy):
            return None
        returned = back.policy.target_topic(copy)
        first = first or Loop(topic, copy, returned)
        if returned in seen or returned == topic:
            return Loop(topic, copy, returned) if there.topics.matches(returned) else None
        if len(returned) > _LONGEST_NAME:
            return first
        seen.add(topic)
        topic = returned
    return None
