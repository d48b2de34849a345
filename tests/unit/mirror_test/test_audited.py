from typing import Any

import pytest

from headrace.api import FLOW_LABEL, MirrorTest
from headrace.api.meta import ObjectMeta
from headrace.errors import InvalidSpec
from headrace.mirror_test import MirrorTestRun, audited_topics


def run(topics: list[str], **spec: Any) -> MirrorTestRun:
    clusters = {
        "source": {"alias": "east", "bootstrapServers": "e:1"},
        "target": {"alias": "west", "bootstrapServers": "w:1"},
    }
    audit = {"topics": topics, **spec.pop("audit", {})}
    document = {"metadata": {"name": "t"}, "spec": {**clusters, "audit": audit, **spec}}
    return MirrorTestRun(name="r", test=MirrorTest.model_validate(document))


def named(test: MirrorTestRun, source: dict[str, int], target: dict[str, int]) -> dict[str, str]:
    return {topic.source: topic.target for topic in audited_topics(test, source, target)}


def test_topics_are_chosen_by_whole_names() -> None:
    source = {"orders": 1, "orders-old": 1, "__offsets": 1, "heartbeats": 1, "mm2-x.internal": 1}
    test = run(["orders", "__.*", "heart.*", "mm2.*"])
    assert named(test, source, {}) == {"orders": "east.orders"}
    test = run([".*"], audit={"exclude": [".*-old"]}, targetTopic="{topic}")
    assert named(test, source, {}) == {"orders": "orders"}


def test_a_topic_of_the_target_alone_is_compared() -> None:
    target = {"east.orders": 1, "east.users": 2, "users": 1, "west.orders": 1}
    found = audited_topics(run(["orders", "users"]), {"orders": 1}, target)
    assert [(t.source, t.source_partitions, t.target_partitions) for t in found] == [
        ("orders", 1, 1),
        ("users", 0, 2),
    ]


def test_patterns_that_match_nothing_are_named() -> None:
    with pytest.raises(InvalidSpec, match=r"no topic of east matches payments, bills: correct"):
        audited_topics(run(["payments", "bills"]), {"orders": 1}, {"orders": 1})
    with pytest.raises(InvalidSpec, match=r"no topic of east matches bills: correct"):
        audited_topics(run(["orders", "bills"]), {"orders": 1}, {})
    with pytest.raises(InvalidSpec, match=r"no topic of east matches orders: correct"):
        audited_topics(run(["orders"], audit={"exclude": ["o.*"]}), {"orders": 1}, {})


def test_a_pattern_of_a_flow_may_match_topics_that_do_not_exist_yet() -> None:
    test = run(["orders", "bills"])
    annotated = test.test.model_copy(
        update={"metadata": ObjectMeta(name="t", annotations={FLOW_LABEL: "f"})}
    )
    of_flow = test.model_copy(update={"test": annotated})
    assert named(of_flow, {"orders": 1}, {}) == {"orders": "east.orders"}


def test_fewer_partitions_than_the_mirror_preserves_are_named() -> None:
    topics = ({"orders": 3}, {"east.orders": 2})
    with pytest.raises(InvalidSpec, match=r"orders has 3 partitions on east, and its copy .* 2"):
        audited_topics(run(["orders"]), *topics)
    [topic] = audited_topics(run(["orders"], partitioning="Any"), *topics)
    assert topic.target_partitions == 2
