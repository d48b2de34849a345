"""Loops of topics between clusters, within a flow and between two flows."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from headrace.api import ClusterSpec, ReplicationFlow
from headrace.replication.filters import TopicFilter
from headrace.replication.policies import ReplicationPolicy, policy_for

_LONGEST_NAME = 249
"""Of a topic (``org.apache.kafka.common.internals.Topic``): one that gets a prefix in each round
comes back until then."""


class Direction(NamedTuple):
    """What a flow copies, in which names."""

    topics: TopicFilter
    policy: ReplicationPolicy


class TopicLoop(NamedTuple):
    """A topic of the first flow's source that comes back as one that the flow copies, for ever."""

    topic: str
    there: str
    """Its name on the target."""
    back: str
    """The name of that one's copy."""


def find_loop(there: Direction, back: Direction, topics: Iterable[str]) -> TopicLoop | None:
    """The first of ``topics``, of the source of ``there``, that goes round."""
    return next((found for topic in topics if (found := _loop(there, back, topic))), None)


def _loop(there: Direction, back: Direction, topic: str) -> TopicLoop | None:
    seen, first = set[str](), None
    while there.topics.matches(topic):
        copy = there.policy.target_topic(topic)
        if not back.topics.matches(copy):
            return None
        returned = back.policy.target_topic(copy)
        first = first or TopicLoop(topic, copy, returned)
        if returned in seen or returned == topic:
            return TopicLoop(topic, copy, returned) if there.topics.matches(returned) else None
        if len(returned) > _LONGEST_NAME:
            return first
        seen.add(topic)
        topic = returned
    return None


_NAME = re.compile(r"[\w.-]+")
"""A pattern that is a name: a dot matches itself, too."""
_KNOWN = ("Default", "Identity", "RenameMap")


class CopiedTopics(NamedTuple):
    """What a flow copies, as its source connector found it."""

    source_cluster_id: str = ""
    target_cluster_id: str = ""
    topics: frozenset[str] = frozenset()
    """Of the source."""


def may_loop(flow: ReplicationFlow) -> bool:
    """Whether that can be decided while it runs: what names a plug-in makes is not known here, and
    headers that a filter asks for may end any loop."""
    return flow.spec.replication_policy.type in _KNOWN and flow.spec.record_filter is None


def share_addresses(there: ReplicationFlow, back: ReplicationFlow) -> bool:
    """Whether the one's source is the other's target, and the other way round, as far as that can
    be seen without asking: they share an address."""
    return _same(there.spec.source, back.spec.target) and _same(there.spec.target, back.spec.source)


def same_clusters(one: ReplicationFlow, other: ReplicationFlow) -> bool:
    """Return whether both flows name an address of the same source and of the same target."""
    return _same(one.spec.source, other.spec.source) and _same(one.spec.target, other.spec.target)


def copied_by_both(
    one: ReplicationFlow, other: ReplicationFlow, topics: Iterable[str]
) -> frozenset[str]:
    """Return those of ``topics`` that both flows copy to the same topic of the same clusters."""
    if not same_clusters(one, other):
        return frozenset()
    first, second = _direction(one), _direction(other)
    return frozenset(
        topic
        for topic in topics
        if first.topics.matches(topic)
        and second.topics.matches(topic)
        and first.policy.target_topic(topic) == second.policy.target_topic(topic)
    )


def loop_of_patterns(there: ReplicationFlow, back: ReplicationFlow) -> TopicLoop | None:
    """By names in the specs, and by patterns that both flows have in common.

    A pattern counts where both flows exclude the same: else what one of them leaves out may be all
    that the other copies. Those are decided by their topics (``loop_of_topics``).
    """
    renames = there.spec.replication_policy.renames or {}
    included = {*there.spec.topics.include, *back.spec.topics.include}
    names = {one for one in included if _NAME.fullmatch(one)}
    topics = {*renames, *renames.values(), *names}
    same = set(there.spec.topics.exclude) == set(back.spec.topics.exclude)
    if same:
        topics |= included  # one that matches itself, as orders-.*, stands for what it matches
    if loop := find_loop(_direction(there), _direction(back), sorted(topics)):
        return loop
    both = {*there.spec.topics.include} & {*back.spec.topics.include} - {*there.spec.topics.exclude}
    if (
        same
        and both
        and there.spec.replication_policy.type == back.spec.replication_policy.type == "Identity"
    ):
        return TopicLoop(first := min(both), first, first)
    return None


def loop_of_topics(
    there: ReplicationFlow, copied: CopiedTopics, back: ReplicationFlow, copied_back: CopiedTopics
) -> TopicLoop | None:
    """By the topics that both flows copy now; for ``there``. None between other clusters."""
    if not (may_loop(there) and may_loop(back)):
        return None
    ids = {*copied[:2], *copied_back[:2]}
    known = "" not in ids
    opposite = copied[:2] == copied_back[1::-1] if known else share_addresses(there, back)
    if not opposite:
        return None
    one, other = _direction(there), _direction(back)
    if loop := find_loop(one, other, sorted(copied.topics)):
        return loop
    if loop := find_loop(other, one, sorted(copied_back.topics)):
        return TopicLoop(loop.there, loop.back, other.policy.target_topic(loop.back))
    return None


def loop_sentence(loop: TopicLoop, back: str) -> str:
    """For the flow that comes second; ``back``: the other one."""
    return (
        f"records of {loop.topic} would go round: this flow copies it as {loop.there}, flow {back} "
        f"copies that back as {loop.back}, which this flow copies again; exclude one of them in "
        "spec.topics of its flow, or stop one of the flows (spec.state: Stopped)"
    )


def _same(one: ClusterSpec, other: ClusterSpec) -> bool:
    return bool(_servers(one.bootstrap_servers) & _servers(other.bootstrap_servers))


@lru_cache(maxsize=4096)
def _servers(addresses: str) -> frozenset[str]:
    return frozenset(server.strip().lower() for server in addresses.split(","))


def _direction(flow: ReplicationFlow) -> Direction:
    spec = flow.spec
    policy = policy_for(spec.replication_policy, spec.source.alias)
    topics = TopicFilter(spec.topics.include, spec.topics.exclude, policy, spec.target.alias)
    return Direction(topics, policy)
