"""Loops of topics between clusters, within a flow and between flows."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from headrace.api import ClusterSpec, ReplicationFlow
from headrace.replication.filters import TopicFilter
from headrace.replication.policies import ReplicationPolicy, policy_for

_MAX_NAME_LENGTH = 249
"""Maximum length of a topic name (``org.apache.kafka.common.internals.Topic``).

A topic that gets another prefix in each round returns until its name has this length.
"""


class Direction(NamedTuple):
    """Topics that a flow copies, and the policy that names the copies."""

    topics: TopicFilter
    policy: ReplicationPolicy


class TopicLoop(NamedTuple):
    """A source topic of a flow whose copy returns to the source and is copied again."""

    topic: str
    there: str
    """Name of the topic's copy on the target."""
    back: str
    """Name that the copy has after it returned to the source."""


def find_loop(forward: Direction, back: Direction, topics: Iterable[str]) -> TopicLoop | None:
    """Return the first loop of ``topics``, which are source topics of ``forward``, or None.

    In a loop, ``back`` returns the copy to the source under a name that ``forward`` copies again.
    """
    return next((found for topic in topics if (found := _loop(forward, back, topic))), None)


def _loop(forward: Direction, back: Direction, topic: str) -> TopicLoop | None:
    seen, first = set[str](), None
    while forward.topics.matches(topic):
        copy = forward.policy.target_topic(topic)
        if not back.topics.matches(copy):
            return None
        returned = back.policy.target_topic(copy)
        first = first or TopicLoop(topic, copy, returned)
        if returned in seen or returned == topic:
            return TopicLoop(topic, copy, returned) if forward.topics.matches(returned) else None
        if len(returned) > _MAX_NAME_LENGTH:
            return first
        seen.add(topic)
        topic = returned
    return None


_NAME = re.compile(r"[\w.-]+")
"""Patterns that are also topic names. A dot in such a pattern matches a dot."""
_KNOWN = ("Default", "Identity", "RenameMap")


class CopiedTopics(NamedTuple):
    """Topics that a flow copies, as its source connector found them."""

    source_cluster_id: str = ""
    target_cluster_id: str = ""
    topics: frozenset[str] = frozenset()
    """Topic names on the source."""


def may_loop(flow: ReplicationFlow) -> bool:
    """Return True if loops of the flow can be detected.

    Names that a plug-in chooses are unknown here. A record filter by headers may end a loop.
    """
    return flow.spec.replication_policy.type in _KNOWN and flow.spec.record_filter is None


def share_addresses(forward: ReplicationFlow, back: ReplicationFlow) -> bool:
    """Return True if each flow's source shares an address with the other flow's target.

    The clusters are not contacted.
    """
    return _same(forward.spec.source, back.spec.target) and _same(
        forward.spec.target, back.spec.source
    )


def same_clusters(one: ReplicationFlow, other: ReplicationFlow) -> bool:
    """Return True if the flows share an address of the source, and an address of the target."""
    return _same(one.spec.source, other.spec.source) and _same(one.spec.target, other.spec.target)


def copied_by_both(
    one: ReplicationFlow, other: ReplicationFlow, topics: Iterable[str]
) -> frozenset[str]:
    """Return the ``topics`` that both flows copy from one source to one topic of one target."""
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


def loop_of_patterns(forward: ReplicationFlow, back: ReplicationFlow) -> TopicLoop | None:
    """Return a loop that the topic names and patterns of both specs prove, or None.

    Patterns are compared only if both flows have the same exclusions. Otherwise one flow may
    exclude all topics that the other copies, and ``loop_of_topics`` decides.
    """
    renames = forward.spec.replication_policy.renames or {}
    included = {*forward.spec.topics.include, *back.spec.topics.include}
    names = {one for one in included if _NAME.fullmatch(one)}
    topics = {*renames, *renames.values(), *names}
    same = set(forward.spec.topics.exclude) == set(back.spec.topics.exclude)
    if same:
        topics |= included  # a pattern like orders-.* matches itself and represents its topics
    if loop := find_loop(_direction(forward), _direction(back), sorted(topics)):
        return loop
    both = {*forward.spec.topics.include} & {*back.spec.topics.include} - {
        *forward.spec.topics.exclude
    }
    if (
        same
        and both
        and forward.spec.replication_policy.type == back.spec.replication_policy.type == "Identity"
    ):
        return TopicLoop(first := min(both), first, first)
    return None


_ROUNDS = 3
"""Number of rounds in which a name grew after which it counts as growing without end."""


_MAX_STEPS = 10_000
"""Number of copies after which the search for a ring ends. Only a mesh of many clusters whose flows
copy each other's copies has more. Such flows find a ring when they run."""


class RingStep(NamedTuple):
    """Copy of one topic by one flow."""

    flow: ReplicationFlow
    topic: str
    copy: str


def ring_of_patterns(flows: Sequence[ReplicationFlow]) -> list[RingStep]:
    """Return a ring of three or more flows that the topic names and patterns of their specs prove.

    The list is empty if there is none. Patterns are compared as in ``loop_of_patterns``.
    """
    directions = {n: _direction(flow) for n, flow in enumerate(flows)}
    following = {
        n: [m for m, other in enumerate(flows) if _same(one.spec.target, other.spec.source)]
        for n, one in enumerate(flows)
    }
    done = set[tuple[int, str]]()

    def walk(n: int, topic: str, path: list[tuple[int, str]]) -> list[tuple[int, str]]:
        step = n, topic
        if step in path:
            return path[path.index(step) :]
        before = [len(one) for m, one in path if m == n]
        if len(before) > _ROUNDS and before[0] < len(topic):
            return path
        if step in done or len(done) > _MAX_STEPS or not directions[n].topics.matches(topic):
            return []
        copy = directions[n].policy.target_topic(topic)
        rings = (walk(m, copy, [*path, step]) for m in following[n])
        found = next((ring for ring in rings if len({m for m, _ in ring}) > 2), [])
        done.add(step)
        return found

    for n, flow in enumerate(flows):
        renames = flow.spec.replication_policy.renames or {}
        included = flow.spec.topics.include
        # A name that begins with a dot is internal, so .* does not represent its topics.
        examples = {re.sub(r"\.[*+]", "x", pattern) for pattern in included}
        for topic in sorted({*renames, *renames.values(), *included, *examples}):
            ring = walk(n, topic, [])
            exclusions = {frozenset(flows[m].spec.topics.exclude) for m, _ in ring}
            named = topic not in examples - {*included} and _NAME.fullmatch(topic)
            if ring and (named or len(exclusions) == 1):
                return [
                    RingStep(flows[m], one, directions[m].policy.target_topic(one))
                    for m, one in ring
                ]
    return []


def ring_sentence(ring: Sequence[RingStep]) -> str:
    """Return the message about a ring of flows."""
    steps = ", ".join(
        f"flow {flow.metadata.name} copies {topic} of {flow.spec.source.alias} to {copy} of "
        f"{flow.spec.target.alias}"
        for flow, topic, copy in ring
    )
    return (
        f"records of {ring[0].topic} would go round: {steps}; exclude the topic in spec.topics of "
        "one of these flows, or stop one of them (spec.state: Stopped)"
    )


def loop_of_topics(
    forward: ReplicationFlow, copied: CopiedTopics, back: ReplicationFlow, copied_back: CopiedTopics
) -> TopicLoop | None:
    """Return a loop among the topics that both flows copy now, from the view of ``forward``.

    Return None if there is no loop, or if the flows are not between the same clusters in opposite
    directions.
    """
    if not (may_loop(forward) and may_loop(back)):
        return None
    ids = {*copied[:2], *copied_back[:2]}
    known = "" not in ids
    opposite = copied[:2] == copied_back[1::-1] if known else share_addresses(forward, back)
    if not opposite:
        return None
    one, other = _direction(forward), _direction(back)
    if loop := find_loop(one, other, sorted(copied.topics)):
        return loop
    if loop := find_loop(other, one, sorted(copied_back.topics)):
        return TopicLoop(loop.there, loop.back, other.policy.target_topic(loop.back))
    return None


def loop_sentence(loop: TopicLoop, back: str) -> str:
    """Return the message for a flow with a loop. ``back`` names the flow that copies back."""
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
