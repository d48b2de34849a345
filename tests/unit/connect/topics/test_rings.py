"""Flows that store ancestry and refuse topics of rings. Clusters are in memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.fake_kafka import FakeKafka

from headrace.api import ReplicationFlow, TopicPartition
from headrace.connect import DriverIdentity
from headrace.connect.failover.switch import Wish, abort, switch
from headrace.connect.preflight.permissions import CheckResult
from headrace.connect.preflight.preflight import check_flow
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.flow_rings import RingGuard
from headrace.errors import Fatal, Retriable
from headrace.replication import Progress

TOPIC = "orders"
Start = Callable[[str, str], "Flow"]


class Flow:
    """A flow with policy Identity between two of the clusters."""

    def __init__(self, kafka: FakeKafka, source: str, target: str) -> None:
        self.kafka = kafka
        document = {
            "metadata": {"name": f"{source}-{target}"},
            "spec": {
                "source": {"alias": source, "bootstrapServers": f"{source}:1"},
                "target": {"alias": target, "bootstrapServers": f"{target}:1"},
                "topics": {"include": [f"{TOPIC}.*"]},
                "replicationPolicy": {"type": "Identity"},
            },
        }
        self.context = FlowContext(
            ReplicationFlow.model_validate(document),
            DriverIdentity("d", "d-1"),
            clients=kafka.clients(),
            clock=kafka.clock,
        )
        self.context.progress.start()
        self.start()

    def start(self) -> None:
        """Start a source connector."""
        self.context.progress.read_to_end()
        self.guard = RingGuard(self.context)

    def discover(self) -> set[str]:
        """Return the topics that the flow copies."""
        there = self.context.source.topics()
        selected = [topic for topic in there if self.context.topics.matches(topic)]
        self.guard.read(there)
        if self.guard.store(selected):
            self.guard.read(there)
            self.guard.store(selected)
        return {*selected} - self.guard.refused.keys() - self.guard.held

    def stop(self) -> None:
        """Stop the source connector as a flow that is stopped."""
        self.guard.stop()
        self.guard.close()


@pytest.fixture
def kafka() -> FakeKafka:
    kafka = FakeKafka("east", "west", "north")
    for cluster in kafka.clusters.values():
        cluster.create_topic(TOPIC, 1)
    return kafka


@pytest.fixture
def start(kafka: FakeKafka) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(source: str, target: str) -> Flow:
            flow = Flow(kafka, source, target)
            stack.callback(flow.context.close)
            stack.callback(flow.guard.close)
            return flow

        yield start


def test_the_last_flow_of_a_ring_refuses_the_topic_until_another_one_stops(
    kafka: FakeKafka, start: Start
) -> None:
    there, on, back = start("east", "west"), start("west", "north"), start("north", "east")
    assert there.discover() == {TOPIC}
    kafka.clock.advance(0.001)  # no two flows have the same age
    assert on.discover() == set(), "held: the source is a copy"
    kafka.clock.advance(0.001)
    assert back.discover() == set()
    (sentence,) = back.guard.refused.values()
    assert sentence.startswith(
        "orders is not copied, because records would go round: flow default/east-west copies "
        "orders of east to orders of west, flow default/west-north copies that to orders of north, "
        "and this flow would copy that to orders of east; exclude"
    )
    kafka.clock.advance(11)
    assert [flow.discover() for flow in (there, on, back)] == [{TOPIC}, {TOPIC}, set()]

    there.stop()
    assert back.discover() == set()
    kafka.clock.advance(31)
    assert on.discover() == {TOPIC}
    assert back.discover() == {TOPIC}

    there.start()
    assert there.discover() == set(), "it is the youngest now"
    assert there.guard.refused
    kafka.clock.advance(11)
    assert [flow.discover() for flow in (on, back, there)] == [{TOPIC}, {TOPIC}, set()]


def test_no_order_of_a_simultaneous_start_lets_records_go_round(
    kafka: FakeKafka, start: Start
) -> None:
    """All three write before one of them reads the others' records."""
    flows = [start("east", "west"), start("west", "north"), start("north", "east")]
    for flow in flows:
        flow.guard.store([TOPIC])
        kafka.clock.advance(0.001)
    copied: list[set[str]] = []
    for _ in range(8):
        copied = [flow.discover() for flow in flows]
        assert not all(copied), "a ring"
        kafka.clock.advance(2)
    assert copied == [{TOPIC}, {TOPIC}, set()]


def test_another_connector_of_a_flow_keeps_its_age(kafka: FakeKafka, start: Start) -> None:
    flows = there, _, back = [start("east", "west"), start("west", "north"), start("north", "east")]
    for flow in flows:
        flow.discover()
        kafka.clock.advance(0.001)
    kafka.clock.advance(11)
    there.stop()
    there.start()
    assert there.discover() == {TOPIC}
    assert back.discover() == set()


def test_a_flow_whose_drivers_were_killed_counts_for_ten_minutes(
    kafka: FakeKafka, start: Start
) -> None:
    start("east", "west").discover()
    kafka.clock.advance(590)
    assert start("west", "east").discover() == set()
    kafka.clock.advance(41)
    assert start("west", "east").discover() == {TOPIC}


def test_a_flow_that_renews_its_record_counts_whatever_its_clock_says(
    kafka: FakeKafka, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = start("east", "west")
    there.discover()
    kafka.clock.advance(3_000)
    back = start("west", "east")
    assert back.discover() == {TOPIC}, "killed long ago"
    monkeypatch.setattr(kafka.clock, "time", lambda: 1_700_000_000.0)
    kafka.clock.advance(21)
    there.discover()
    monkeypatch.undo()
    assert back.discover() == set()


def test_a_topic_that_may_not_be_read_is_named_and_copies_go_on(
    kafka: FakeKafka, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("east", "west").discover()

    def refuse(*_: object) -> None:
        raise Fatal("could not read topic progress on west: denied")

    monkeypatch.setattr(kafka.clusters["west"], "offsets", refuse)
    back = start("west", "east")
    assert back.discover() == {TOPIC}
    assert back.guard.problem == (
        "rings of flows may be missed: could not read topic progress on west: denied"
    )
    monkeypatch.undo()
    assert back.discover() == set()
    assert back.guard.problem == ""


def progress(flow: Flow) -> dict[TopicPartition, Progress]:
    """Store progress of the topic's partition as an owner does, and return it."""
    at = TopicPartition(TOPIC, 0)
    stored = Progress("", 0, -1, "", 0, epoch=1, owner="f-source-0 on d-1")
    flow.context.progress.write({flow.context.progress_key(at): stored})
    flow.context.progress.read_to_end()
    return {at: stored}


def test_a_copy_that_is_failed_over_may_be_copied_back(kafka: FakeKafka, start: Start) -> None:
    """The flow was killed, and nothing stored that it has stopped."""
    there = start("east", "west")
    there.discover()
    wishes = {at: Wish(one, 0) for at, one in progress(there).items()}
    assert start("west", "east").discover() == set()
    switch(there.context, wishes, planned=False)
    back = start("west", "east")
    assert back.discover() == {TOPIC}

    there.start()
    assert there.discover() == {TOPIC}, "its tasks say that the partition is failed over"
    assert (back.discover(), there.guard.refused) == ({TOPIC}, {})

    stored = there.context.stored(TopicPartition(TOPIC, 0))
    assert stored is not None
    abort(there.context, {TopicPartition(TOPIC, 0): stored})
    assert there.discover() == set(), "it goes round with the flow back"


def test_a_flow_with_a_record_filter_is_in_no_ring(kafka: FakeKafka, start: Start) -> None:
    there, back = start("east", "west"), start("west", "east")
    there.discover()
    assert back.discover() == set()
    document = there.context.flow.model_dump(by_alias=True, exclude_none=True, mode="json")
    document["spec"]["recordFilter"] = {"headers": {"exclude": [{"name": "from-west"}]}}
    there.context.change(ReplicationFlow.model_validate(document))
    assert there.discover() == {TOPIC}
    assert back.discover() == {TOPIC}


def test_check_names_a_ring_before_the_flow_starts(kafka: FakeKafka, start: Start) -> None:
    there, back = start("east", "west"), start("west", "east")
    there.discover()
    found = [one for one in check_flow(back.context) if "ring" in f"{one.what}{one.message}"]
    assert [(one.subject, one.what, one.outcome) for one in found] == [
        ("topic orders", "ring", CheckResult.MISSING)
    ]
    assert "flow default/east-west copies orders of east to orders of west" in found[0].message
    assert not [one for one in check_flow(there.context) if one.what == "ring"]


def test_ancestry_that_was_read_counts_while_its_topic_has_no_leader(
    kafka: FakeKafka, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, back = start("east", "west"), start("west", "east")
    there.discover()

    def no_leader(*_: object) -> None:
        raise Retriable("progress-0 has no leader")

    monkeypatch.setattr(kafka.clusters["west"], "offsets", no_leader)
    with pytest.raises(Retriable):
        back.discover()
    monkeypatch.undo()
    assert back.discover() == set()
    monkeypatch.setattr(kafka.clusters["west"], "offsets", no_leader)
    assert back.discover() == set()
    assert back.guard.problem == "rings of flows may be missed: progress-0 has no leader"
    monkeypatch.undo()
    there.stop()
    kafka.clock.advance(31)
    assert back.discover() == {TOPIC}


def test_a_flow_notices_a_ring_between_two_discoveries(kafka: FakeKafka, start: Start) -> None:
    there, back = start("east", "west"), start("west", "east")
    back.discover()
    assert not back.guard.poll(), "not due"
    kafka.clock.advance(0.001)
    assert there.discover() == set()
    kafka.clock.advance(2)
    assert not back.guard.poll(), "the other flow is younger"
    there.stop()
    kafka.clock.advance(40)
    assert there.discover() == set()
    assert not back.guard.poll()
    assert not back.guard.refused


def test_an_open_transaction_of_progress_hides_no_ancestry(kafka: FakeKafka, start: Start) -> None:
    there, back = start("east", "west"), start("west", "east")
    at = TopicPartition(there.context.progress.topic, 0)
    kafka.clusters["west"].logs[at].open_from = 0
    there.discover()
    assert back.discover() == set()
