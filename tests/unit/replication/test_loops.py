"""Records that two opposite flows would copy in a loop."""

from collections.abc import Mapping

from headrace.api import Policy
from headrace.replication import Direction, TopicFilter, TopicLoop, find_loop, policy_for


def renaming(
    source: str, target: str, renames: Mapping[str, str], include: str = ".*"
) -> Direction:
    policy = policy_for(Policy(type="RenameMap", renames=dict(renames)), source)
    return Direction(TopicFilter([include], [], policy, target), policy)


def named_by(type: str, source: str, target: str, include: str) -> Direction:
    policy = policy_for(Policy(type=type), source)
    return Direction(TopicFilter([include], [], policy, target), policy)


def test_a_topic_that_comes_back_under_its_own_name_goes_round() -> None:
    there = renaming("east", "west", {"orders": "orders-copy"})
    back = renaming("west", "east", {"orders-copy": "orders"})
    assert find_loop(there, back, ["orders"]) == TopicLoop("orders", "orders-copy", "orders")


def test_a_topic_that_comes_back_under_another_name_is_followed_to_its_second_round() -> None:
    there = renaming("east", "west", {"a": "b", "c": "d"})
    back = renaming("west", "east", {"b": "c", "d": "a"})
    assert find_loop(there, back, ["a"]) == TopicLoop("c", "d", "a")


def test_what_the_other_flow_does_not_copy_is_no_loop() -> None:
    there = renaming("east", "west", {"a": "b"})
    back = renaming("west", "east", {"b": "a"}, include="c")
    assert find_loop(there, back, ["a"]) is None


def test_the_same_names_in_both_directions_go_round() -> None:
    there = named_by("Identity", "east", "west", "orders-.*")
    back = named_by("Identity", "west", "east", "orders-eu")
    assert find_loop(there, back, ["orders-.*", "orders-eu"]) == TopicLoop(*["orders-eu"] * 3)


def test_prefixes_in_both_directions_do_not() -> None:
    there, back = (named_by("Default", *at, ".*") for at in (("east", "west"), ("west", "east")))
    assert find_loop(there, back, ["orders", ".*"]) is None


def test_a_topic_that_gets_a_prefix_in_each_round_comes_back_all_the_same() -> None:
    there = named_by("Identity", "east", "west", ".*")
    back = named_by("Default", "west", "east", ".*")
    assert find_loop(there, back, ["orders"]) == TopicLoop("orders", "orders", "west.orders")
