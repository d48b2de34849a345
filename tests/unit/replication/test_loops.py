"""Records that two opposite flows would copy round and round."""

from collections.abc import Mapping

from headrace.api import Policy
from headrace.replication import Direction, Loop, TopicFilter, find_loop, policy_for


def renaming(
    source: str, target: str, renames: Mapping[str, str], include: str = ".*"
) -> Direction:
    policy = policy_for(Policy(type="RenameMap", renames=dict(renames)), source)
    return Direction(TopicFilter([include], [], policy, target), policy)


def test_a_topic_that_comes_back_under_its_own_name_goes_round() -> None:
    there = renaming("east", "west", {"orders": "orders-copy"})
    back = renaming("west", "east", {"orders-copy": "orders"})
    assert find_loop(there, back, ["orders"]) == Loop("orders", "orders-copy", "orders")


def test_a_topic_that_comes_back_under_another_name_is_followed_to_its_second_round() -> None:
    there = renaming("east", "west", {"a": "b", "c": "d"})
    back = renaming("west", "east", {"b": "c", "d": "a"})
    assert find_loop(there, back, ["a"]) == Loop("c", "d", "a")


def test_what_the_other_flow_does_not_copy_is_no_loop() -> None:
    there = renaming("east", "west", {"a": "b"})
    back = renaming("west", "east", {"b": "a"}, include="c")
    assert find_loop(there, back, ["a"]) is None
