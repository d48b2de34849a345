"""Partitions that ``headrace flow reset`` selects."""

from typing import Any

import pytest

from headrace.api import ObjectMeta, ReplicationFlow, ReplicationTask
from headrace.control.flow_actions import answer_resets
from headrace.errors import InvalidSpec

FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "f"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
            "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
            "topics": {"include": [".*"]},
        },
    }
)


def task(index: int, *partitions: tuple[str, str]) -> ReplicationTask:
    packed = [{"topic": topic, "partitions": numbers} for topic, numbers in partitions]
    spec = {"flowName": "f", "type": "SourceTask", "index": index, "partitions": packed}
    return ReplicationTask.model_validate(
        {"metadata": ObjectMeta(name=f"f-source-task-{index}"), "spec": spec}
    )


TASKS = [task(0, ("orders", "0-1"), ("payments", "0")), task(1, ("orders", "2"))]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("orders", "0-2"), ("orders/1-2", "1-2"), ("orders/2", "2")],
)
def test_partitions_are_those_of_all_tasks(asked: str, meant: str) -> None:
    found: list[Any] = answer_resets(FLOW, TASKS, asked)["partitions"]
    assert found == [{"topic": "orders", "partitions": meant}]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("order", "flow f does not copy topic order; it copies orders, payments"),
        ("orders/2-4", "flow f does not copy orders/3-4; of orders it copies 0-2"),
        ("orders/x", "'orders/x' is neither a topic nor some of its partitions"),
    ],
)
def test_what_the_flow_does_not_copy_is_refused(asked: str, said: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        answer_resets(FLOW, TASKS, asked)
    assert said in str(refused.value)


def test_a_flow_that_did_not_begin_yet_says_so_and_many_topics_are_not_all_listed() -> None:
    with pytest.raises(InvalidSpec, match="it copies no topic yet"):
        answer_resets(FLOW, [], "orders")
    many = task(0, *((f"t{n}", "0") for n in range(10, 22)))
    with pytest.raises(InvalidSpec, match=r"t18, t19, \.\.\.$"):
        answer_resets(FLOW, [many], "orders")
