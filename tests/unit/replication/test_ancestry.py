"""Rule about rings of flows, and its records."""

import json
from math import inf

import pytest

from headrace.replication.ancestry import (
    AncestryKey,
    AncestryTable,
    ClusterTopic,
    Descent,
    Hop,
    Running,
    encode,
    is_ancestry,
    judge_hop,
)
from headrace.replication.first_start import FirstStartKey
from headrace.replication.progress import ProgressKey

KEY = AncestryKey("shop/orders", "E")


def hop(flow: str, source: str, target: str, since_ms: int = 0) -> Hop:
    """Return a hop between topics such as ``A/orders``."""
    here, there = (ClusterTopic(*one.split("/")) for one in (source, target))
    return Hop(flow, here, there, here.cluster_id.lower(), there.cluster_id.lower(), since_ms)


def test_a_name_that_grows_in_each_round_is_refused_after_the_first_round() -> None:
    upstream: list[Descent] = []
    for flow, source, target in (
        ("ab", "A/t", "B/t"),
        ("bc", "B/t", "C/t"),
        ("ca", "C/t", "A/c.t"),
        ("ab", "A/c.t", "B/c.t"),
        ("bc", "B/c.t", "C/c.t"),
    ):
        one, ring = judge_hop(hop(flow, source, target), upstream, lambda name: True)
        assert ring is None
        upstream = [one]
    again = hop("ca", "C/c.t", "A/c.c.t")
    assert judge_hop(again, upstream, lambda name: name == "c.t").ring is None, "it ends"
    refused, ring = judge_hop(again, upstream, lambda name: name == "c.c.t")
    assert refused.hop.refused
    assert ring is not None
    assert ring.sentence.startswith(
        "c.t is not copied, because a new topic would be created in each round: this flow copies t "
        "of c to c.t of a, flow ab copies that to c.t of b, flow bc copies that to c.t of c, and "
        "this flow would copy that to c.c.t of a; exclude the topic in spec.topics of one of these "
        "flows"
    )


def test_records_are_read_as_they_were_written() -> None:
    table, line = AncestryTable(), (hop("xe", "X/t", "E/t"),)
    stored = Descent(hop("shop/orders", "E/t", "W/t", 7), (line,))
    key = AncestryKey("shop/orders", "E", "t").encode()
    table.read(key, encode(stored), 1_000)
    table.read(KEY.encode(), encode(Running(stopped=False)), 1_000)
    assert table.of_flow(KEY, 2_000) == {"t": stored}
    assert table.active(2_000, 0.0) == [stored]
    table.read(key, None, 3_000)
    assert table.active(4_000, 0.0) == []


def test_records_of_a_later_version_and_other_records_are_told_apart() -> None:
    table = AncestryTable()
    later = json.loads(encode(Running(stopped=False))) | {"version": 2, "more": 1}
    with pytest.raises(ValueError, match="version 2, this headrace reads 1"):
        table.read(KEY.encode(), json.dumps(later).encode(), 0)
    assert is_ancestry(KEY.encode())
    assert not is_ancestry(FirstStartKey("orders", "E").encode())
    assert not is_ancestry(ProgressKey("E", "t", 0, "t").encode())


@pytest.mark.parametrize(
    ("stopped", "age_ms", "counts"),
    [(False, 599_000, True), (False, 601_000, False), (True, 0, False)],
)
def test_a_flow_counts_while_it_renews_its_record(stopped: bool, age_ms: int, counts: bool) -> None:
    table, stored = AncestryTable(), Descent(hop("shop/orders", "E/t", "W/t"))
    table.read(AncestryKey("shop/orders", "E", "t").encode(), encode(stored), 0)
    table.read(KEY.encode(), encode(Running(stopped=stopped)), 1_000_000, -inf)
    assert bool(table.active(1_000_000 + age_ms, 5.0)) is counts


def test_a_flow_that_stopped_counts_for_a_grace_period_where_it_was_seen() -> None:
    table, stored = AncestryTable(), Descent(hop("shop/orders", "E/t", "W/t"))
    table.read(AncestryKey("shop/orders", "E", "t").encode(), encode(stored), 0)
    table.read(KEY.encode(), encode(Running(stopped=False)), 0)
    assert table.active(0, 100.0)
    table.read(KEY.encode(), encode(Running(stopped=True)), 1_000, 101.0)
    assert table.active(1_000, 129.0)
    assert not table.active(1_000, 131.0)
