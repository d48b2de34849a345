"""Random graphs of flows: copies end, and nothing is refused where no ring is."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.api import Policy
from headrace.replication import TopicFilter, policy_for
from headrace.replication.ancestry import ClusterTopic, Descent, Hop, judge_hop

CLUSTERS = "ABC"
TOPICS = ("s", "t")
_LONGEST = 30
"""Maximum length of a topic name in the model. Kafka's limit makes the model slow."""


@dataclass
class Flow:
    """A flow with patterns of topics, and its stored hops."""

    name: str
    source: str
    target: str
    include: tuple[str, ...]
    policy: Policy
    aliases: tuple[str, str]
    stored: dict[str, Descent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.naming = policy_for(self.policy, self.aliases[0])
        self.topics = TopicFilter(self.include, [], self.naming, self.aliases[1])

    def copy_of(self, topic: str) -> ClusterTopic:
        return ClusterTopic(self.target, self.naming.target_topic(topic))


class World:
    """Clusters with topics, and flows that discover them one after the other."""

    def __init__(self, flows: list[Flow], topics: set[ClusterTopic]) -> None:
        self.flows, self.topics = flows, set(topics)
        self._clock = count(1)

    def discover(self, flow: Flow) -> bool:
        """Let a flow discover topics and store their ancestry. Return whether it changed."""
        upstream = [
            one
            for other in self.flows
            if other.target == flow.source
            for one in other.stored.values()
        ]
        before = dict(flow.stored)
        for at in sorted(self.topics, key=lambda at: at.topic):
            if at.cluster_id == flow.source and flow.topics.matches(at.topic):
                known = flow.stored.get(at.topic)
                since_ms = known.hop.since_ms if known else next(self._clock)
                hop = Hop(flow.name, at, flow.copy_of(at.topic), *flow.aliases, since_ms)
                flow.stored[at.topic] = judge_hop(hop, upstream, flow.topics.matches).descent
        return flow.stored != before

    def create_copies(self) -> bool:
        made = {one.hop.target for one in self.hops()}
        is_new = not made <= self.topics
        self.topics |= made
        return is_new

    def hops(self) -> Iterator[Descent]:
        for flow in self.flows:
            yield from (one for one in flow.stored.values() if not one.hop.refused)

    @property
    def refused(self) -> set[tuple[str, str]]:
        return {
            (flow.name, topic)
            for flow in self.flows
            for topic, one in flow.stored.items()
            if one.hop.refused
        }


def has_ring(flows: list[Flow], topics: set[ClusterTopic]) -> bool:
    """Return whether records go round, or names grow without end, if nothing is refused."""
    edges: dict[ClusterTopic, set[ClusterTopic]] = {}
    todo = list(topics)
    while todo:
        at = todo.pop()
        if at in edges:
            continue
        edges[at] = {
            flow.copy_of(at.topic)
            for flow in flows
            if flow.source == at.cluster_id and flow.topics.matches(at.topic)
        }
        if len(at.topic) > _LONGEST:
            return True
        todo += edges[at]
    return is_cyclic(edges)


def is_cyclic(edges: dict[ClusterTopic, set[ClusterTopic]]) -> bool:
    left = dict(edges)
    while ends := [at for at, there in left.items() if not there & left.keys()]:
        for at in ends:
            del left[at]
    return bool(left)


POLICIES = [
    Policy(type="Default"),
    Policy(type="Identity"),
    Policy(type="RenameMap", renames={"s": "t"}),
    Policy(type="RenameMap", renames={"t": "u"}),
]
INCLUDES = [(".*",), (".*",), ("s", "t"), ("t",)]


@st.composite
def flows(draw: st.DrawFn) -> list[Flow]:
    pairs = draw(
        st.lists(
            st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(CLUSTERS)).filter(
                lambda pair: pair[0] != pair[1]
            ),
            min_size=1,
            max_size=5,
            unique=True,
        )
    )
    return [
        Flow(
            f"f{number}",
            pair[0],
            pair[1],
            draw(st.sampled_from(INCLUDES)),
            draw(st.sampled_from(POLICIES)),
            draw(st.sampled_from([(pair[0].lower(), pair[1].lower()), ("x", "y")])),
        )
        for number, pair in enumerate(pairs)
    ]


@given(data=st.data(), flows=flows())
@settings(max_examples=150, deadline=None)
def test_copies_end_and_nothing_is_refused_without_a_ring(
    data: st.DataObject, flows: list[Flow]
) -> None:
    topics = {
        ClusterTopic(cluster, topic)
        for cluster in CLUSTERS
        for topic in TOPICS
        if data.draw(st.booleans())
    }
    world = World(flows, topics)
    for _ in range(data.draw(st.integers(0, 12))):  # discoveries in any order
        world.discover(data.draw(st.sampled_from(flows)))
        if data.draw(st.booleans()):
            world.create_copies()
    while any([*map(world.discover, flows), world.create_copies()]):
        assert max(len(at.topic) for at in world.topics) < _LONGEST, "names grow"
    edges: dict[ClusterTopic, set[ClusterTopic]] = {at: set() for at in world.topics}
    for one in world.hops():
        edges[one.hop.source].add(one.hop.target)
    assert not is_cyclic(edges), "records go round"
    if not has_ring(flows, topics):
        assert not world.refused


@given(ages=st.permutations(range(3)), start=st.lists(st.integers(0, 2), max_size=9))
def test_the_youngest_flow_of_a_ring_refuses_whatever_the_order_of_discoveries(
    ages: list[int], start: list[int]
) -> None:
    topic = "orders"
    ring = [
        Flow(f"f{n}", pair[0], pair[1], (topic,), Policy(type="Identity"), ("x", "y"))
        for n, pair in enumerate(("AB", "BC", "CA"))
    ]
    for flow, age in zip(ring, ages, strict=True):
        at = ClusterTopic(flow.source, topic)
        hop = Hop(flow.name, at, flow.copy_of(topic), *flow.aliases, age)
        flow.stored[topic] = Descent(hop)
    world = World(ring, {ClusterTopic(cluster, topic) for cluster in "ABC"})
    for number in [*start, *[0, 1, 2] * 6]:
        world.discover(ring[number])
    assert world.refused == {(f"f{ages.index(2)}", topic)}


def test_a_flow_that_ends_disappears_from_all_lines() -> None:
    topic = "orders"
    flows = [
        Flow(f"f{n}", pair[0], pair[1], (topic,), Policy(type="Identity"), ("x", "y"))
        for n, pair in enumerate(("DA", "AB", "BC", "CA"))
    ]
    world = World(flows, {ClusterTopic(cluster, topic) for cluster in "ABCD"})

    def settle() -> None:
        for _ in range(9):
            changed = [world.discover(flow) for flow in world.flows]
        assert not any(changed)

    def flows_upstream(flow: Flow) -> set[str]:
        return {one.flow for line in flow.stored[topic].lines for one in line}

    settle()
    assert flows_upstream(flows[2]) == {"f0", "f1"}
    assert world.refused == {("f3", topic)}
    world.flows = flows[1:]
    settle()
    assert [flows_upstream(flow) for flow in world.flows] == [{"f3"}, {"f1"}, {"f2"}]
    world.flows = flows[2:]
    settle()
    assert not world.refused
