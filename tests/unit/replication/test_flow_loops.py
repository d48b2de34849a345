"""Two flows in opposite directions, with their patterns and with the topics that they copy."""

from typing import Any

import pytest

from headrace.api import ReplicationFlow
from headrace.replication import (
    CopiedTopics,
    TopicLoop,
    loop_of_patterns,
    loop_of_topics,
    may_loop,
    ring_of_patterns,
    ring_sentence,
    share_addresses,
)

NO_INTERNALS = (r".*[\-\.]internal", r".*\.replica", r"__.*")


def flow(source: str, target: str, *include: str, **more: Any) -> ReplicationFlow:
    """Return a flow with policy Identity, unless ``more`` sets another one."""
    exclude = more.pop("exclude", NO_INTERNALS)
    return ReplicationFlow.model_validate(
        {
            "metadata": {"name": f"{source}-{target}"},
            "spec": {
                "source": {"alias": source, "bootstrapServers": f"{source}:9092"},
                "target": {"alias": target, "bootstrapServers": f"{target}:9092"},
                "topics": {"include": include, "exclude": exclude},
                "replicationPolicy": {"type": "Identity"},
                **more,
            },
        }
    )


def there(*include: str, **more: Any) -> ReplicationFlow:
    return flow("east", "west", *include, **more)


def back(*include: str, **more: Any) -> ReplicationFlow:
    return flow("west", "east", *include, **more)


DEFAULT = {"replicationPolicy": {"type": "Default"}}


@pytest.mark.parametrize(
    ("one", "other", "topic"),
    [
        (there("orders"), back("orders"), "orders"),
        (there("orders-.*"), back("orders-eu"), "orders-eu"),
        (there("orders-eu"), back("orders-.*"), "orders-eu"),
        (there("orders-.*"), back(".*"), "orders-.*"),
        (there(r"orders-\d+"), back("bills", r"orders-\d+"), r"orders-\d+"),
        (there("(eu|us)-[a-z]+"), back("(eu|us)-[a-z]+"), "(eu|us)-[a-z]+"),
        (there("orders"), back("bills"), None),
        (there("orders-[a-z]"), back(".orders-[a-z]."), None),
        (there(r"orders-\d+", **DEFAULT), back(r"orders-\d+", **DEFAULT), None),
        # Each region's topics contain its name: no record is copied in a loop.
        (there(".*", exclude=[".*-west"]), back(".*", exclude=[".*-east"]), None),
        (there("[a-z-]+", exclude=[".*-west"]), back("[a-z-]+", exclude=[".*-east"]), None),
        (there(".*", exclude=[".*-west"]), back("x-east", "y-west", exclude=["__.*"]), "x-east"),
    ],
)
def test_what_patterns_decide(
    one: ReplicationFlow, other: ReplicationFlow, topic: str | None
) -> None:
    found = loop_of_patterns(one, other)
    assert found == (TopicLoop(topic, topic, topic) if topic else None)
    assert bool(loop_of_patterns(other, one)) is bool(found)


EAST_WEST = CopiedTopics("E", "W", frozenset({"orders-eu", "bills"}))
NOTHING = CopiedTopics("W", "E", frozenset())


def test_topics_decide_where_patterns_do_not() -> None:
    one, other = there("orders-.*|bills"), back(".*-eu")
    assert loop_of_patterns(one, other) is None
    assert loop_of_topics(one, EAST_WEST, other, NOTHING) == TopicLoop(*["orders-eu"] * 3)
    assert loop_of_topics(other, NOTHING, one, EAST_WEST) == TopicLoop(*["orders-eu"] * 3), (
        "before it"
    )
    assert loop_of_topics(one, EAST_WEST, back(".*-us"), NOTHING) is None
    assert loop_of_topics(there(".*", **DEFAULT), EAST_WEST, back(".*", **DEFAULT), NOTHING) is None


def test_the_loop_is_told_from_the_side_of_each_flow() -> None:
    renamed = {"type": "RenameMap", "renames": {"bills": "invoices"}}
    again = {"type": "RenameMap", "renames": {"invoices": "bills"}}
    one, other = (
        there("bills", replicationPolicy=renamed),
        back("invoices", replicationPolicy=again),
    )
    assert loop_of_topics(one, EAST_WEST, other, NOTHING) == TopicLoop("bills", "invoices", "bills")
    assert loop_of_topics(other, NOTHING, one, EAST_WEST) == TopicLoop(
        "invoices", "bills", "invoices"
    )


def test_clusters_are_known_by_their_ids_and_by_addresses_only_before() -> None:
    one = there("orders-eu")
    elsewhere = flow("west-2", "east-2", "orders-eu")
    assert not share_addresses(one, elsewhere)
    assert loop_of_topics(one, EAST_WEST, elsewhere, NOTHING)
    assert loop_of_topics(one, EAST_WEST, elsewhere, CopiedTopics()) is None
    assert loop_of_topics(one, EAST_WEST, back("orders-eu"), CopiedTopics())
    forwarded = CopiedTopics("X", "Y", frozenset())
    assert loop_of_topics(one, EAST_WEST, back("orders-eu"), forwarded) is None


def test_what_a_plug_in_names_or_a_filter_leaves_out_is_not_decided() -> None:
    filtered = back("orders-eu", recordFilter={"headers": {"include": [{"name": "a"}]}})
    named = back("orders-eu", replicationPolicy={"type": "mine"})
    assert [may_loop(one) for one in (back("a"), filtered, named)] == [True, False, False]
    for one in (filtered, named):
        assert loop_of_topics(there("orders-eu"), EAST_WEST, one, NOTHING) is None


def ring(*include: str, **more: Any) -> list[ReplicationFlow]:
    pairs = [("east", "west"), ("west", "north"), ("north", "east")]
    return [flow(*pair, *include, **more) for pair in pairs]


def test_patterns_prove_a_ring_of_three_flows() -> None:
    assert ring_sentence(ring_of_patterns(ring("orders"))) == (
        "records of orders would go round: flow east-west copies orders of east to orders of west, "
        "flow west-north copies orders of west to orders of north, flow north-east copies orders "
        "of north to orders of east; exclude the topic in spec.topics of one of these flows, or "
        "stop one of them (spec.state: Stopped)"
    )
    assert ring_of_patterns(ring("orders-.*"))
    assert ring_of_patterns(ring(".*"))
    assert not ring_of_patterns(ring("orders-.*")[:2])
    assert not ring_of_patterns(ring("orders-.*", **DEFAULT))
    there, on, _ = ring("orders-.*")
    assert not ring_of_patterns([there, on, flow("north", "east", "bills")])
    assert not ring_of_patterns([there, on, flow("north", "east", ".*", exclude=["orders-.*"])])
    assert not ring_of_patterns([there, flow("west", "east", "orders-.*")]), "a loop of two"


def test_patterns_prove_that_names_grow_in_a_ring() -> None:
    there, on, _ = ring(".*orders")
    back = flow("north", "east", ".*orders", **DEFAULT)
    found = ring_of_patterns([there, on, back])
    assert len({one.flow.metadata.name for one in found}) == 3
