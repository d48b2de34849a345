"""Names of topics, and the selection of replicated ones."""

import pytest

from headrace.api import Policy
from headrace.errors import InvalidSpec
from headrace.replication import TopicFilter, policy_for

DEFAULT = policy_for(Policy(), "east")
IDENTITY = policy_for(Policy(type="Identity"), "east")


def test_default_puts_the_alias_in_front() -> None:
    assert DEFAULT.target_topic("orders") == "east.orders"
    assert DEFAULT.source_topic("east.orders") == "orders"
    assert DEFAULT.source_topic("orders") is None
    assert policy_for(Policy(separator="_"), "east").target_topic("orders") == "east_orders"


def test_identity_keeps_all_names_but_heartbeats() -> None:
    assert IDENTITY.target_topic("orders") == IDENTITY.source_topic("orders") == "orders"
    assert IDENTITY.target_topic("heartbeats") == "east.heartbeats"
    assert IDENTITY.source_topic("east.heartbeats") == "heartbeats"


def test_a_map_gives_names_and_all_others_stay() -> None:
    renames = {"orders": "sales", "users": "orders"}
    policy = policy_for(Policy(type="RenameMap", renames=renames), "east")
    names = {
        "orders": "sales",
        "users": "orders",
        "bills": "bills",
        "heartbeats": "east.heartbeats",
    }
    assert {topic: policy.target_topic(topic) for topic in names} == names
    assert {copy: policy.source_topic(copy) for copy in names.values()} == {
        copy: topic for topic, copy in names.items()
    }
    assert policy.source_topic("users") is None, "the source's has another name"
    assert policy.came_from("west.heartbeats", "west")
    assert not policy.came_from("west.orders", "west")


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(InvalidSpec, match="no policy Fancy; known here are Default, Identity, Ren"):
        policy_for(Policy(type="Fancy"), "east")


@pytest.mark.parametrize(
    ("topic", "replicated"),
    [
        ("orders", True),
        ("orders.eu", True),
        ("my-orders", False),  # the whole name is matched
        ("orders.replica", False),  # exclude wins
        ("orders.internal", True),  # a user's topic, as in MirrorMaker 4
        ("orders-internal", True),
        ("mm2-orders.internal", False),
        ("orders.checkpoints.internal", False),
        ("__consumer_offsets", False),
        ("west.orders", False),  # copied from the target: a cycle
        ("north.west.orders", False),  # copied through a third cluster
        ("orders.northwest.eu", True),
        ("orders.west", True),  # no prefix: a topic's own name
        ("heartbeats", True),  # for any filter
    ],
)
def test_which_topics_are_replicated(topic: str, replicated: bool) -> None:
    topics = TopicFilter([r"orders.*", r".*west\..*", "__.*"], [r".*\.replica"], DEFAULT, "west")
    assert topics.matches(topic) is replicated


def test_heartbeats_are_left_out_where_they_are_not_wanted() -> None:
    topics = TopicFilter([".*"], [], DEFAULT, "west", heartbeats=False)
    assert topics.matches("orders")
    assert not topics.matches("heartbeats")


def test_patterns_that_match_nothing_are_named() -> None:
    topics = TopicFilter(["orders", "ordres", "east"], [], DEFAULT, "west")
    assert topics.unmatched(["orders", "users"]) == ["ordres", "east"]
