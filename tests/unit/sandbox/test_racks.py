"""Brokers of a sandbox in racks."""

from headrace.sandbox.broker_config import rack_properties


def test_brokers_are_in_their_racks_in_turn_and_followers_serve_consumers() -> None:
    racks = [rack_properties(node, ["a", "b"]) for node in (1, 2, 3)]
    assert [one["broker.rack"] for one in racks] == ["a", "b", "a"]
    assert all(one["replica.selector.class"].endswith(".RackAwareReplicaSelector") for one in racks)
    assert rack_properties(1, ()) == {}
