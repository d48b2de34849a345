"""Racks reported by the source connector, as passed to the assignor."""

from typing import Any

from headrace.api import (
    ObjectMeta,
    RackPartitions,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
    TopicPartitions,
)
from headrace.assign import DriverState
from headrace.placement import Placer, task_id
from headrace.placement.assignor_input import racks


def some(topic: str, partitions: str) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(topic=topic, partitions=partitions),)


def unit(type: TaskType, index: int = 0, flow: str = "f", **status: Any) -> ReplicationTask:
    work = some("orders", str(index)) if type is TaskType.SOURCE_TASK else ()
    return ReplicationTask(
        metadata=ObjectMeta(name=f"{flow}-{type}-{index}".lower()),
        spec=ReplicationTaskSpec(flow_name=flow, type=type, index=index, partitions=work),
        status=ReplicationTaskStatus(**status),
    )


CONNECTOR = unit(
    TaskType.SOURCE_CONNECTOR,
    racks=(
        RackPartitions(rack="a", partitions=("orders/0,2",)),
        RackPartitions(rack="b", partitions=("orders/1-2",)),
    ),
)
TASKS = [unit(TaskType.SOURCE_TASK, index) for index in range(4)]
FLOW = ReplicationFlow.model_validate(
    {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": "f"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "e:1"},
            "target": {"alias": "west", "bootstrapServers": "w:1"},
            "topics": {"include": [".*"]},
        },
    }
)


def test_each_partition_of_a_task_has_its_racks() -> None:
    other = unit(TaskType.SOURCE_TASK, flow="another")
    found = racks([*TASKS, CONNECTOR, other])
    assert found == {
        task_id(task): (frozenset(where),)
        for task, where in zip(TASKS, ("a", "b", "ab", ""), strict=True)
    }
    assert racks([*TASKS, other]) == {}, "no connector knows any"


def test_tasks_are_placed_where_they_can_be_read() -> None:
    placer = Placer()
    drivers = [DriverState("one", rack="b"), DriverState("two", rack="a")]
    decision = placer.decide([FLOW], [CONNECTOR, *TASKS], drivers, 0)
    placer.close()
    owners = [decision.placements[task_id(task)].driver for task in TASKS[:2]]
    assert owners == ["two", "one"]
