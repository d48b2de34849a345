"""Task objects as written by their connector."""

from headrace.api import ReplicationFlow, ReplicationTask, TaskType, TopicPartitions
from headrace.driver.kubernetes_herder import TaskBuilder, matches, other_flows_selector, selector
from headrace.k8s import parse

FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u-1"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "e:1"},
            "target": {"alias": "west", "bootstrapServers": "w:1"},
            "topics": {"include": [".*"]},
        },
    }
)


def test_a_checkpoint_task_has_groups() -> None:
    builder = TaskBuilder(FLOW, TaskType.CHECKPOINT_TASK, 4)
    task = builder.build(0, ["audit", "billing"])
    assert task["spec"] == {
        "flowName": "orders",
        "type": "CheckpointTask",
        "index": 0,
        "taskCount": 0,
        "groups": ["audit", "billing"],
        "connectorEpoch": 4,
    }
    there = parse(ReplicationTask, task)
    assert there.spec.groups == ("audit", "billing")
    assert matches(there, task)
    assert not matches(there, builder.build(0, ["audit"]))


def test_a_source_task() -> None:
    held = [
        TopicPartitions(topic="a", partitions="0-3"),
        TopicPartitions(topic="b", partitions="7"),
    ]
    task = TaskBuilder(FLOW, TaskType.SOURCE_TASK, 4, "west-id", 8).build(3, held)
    assert task == {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationTask",
        "metadata": {
            "name": "orders-source-task-3",
            "namespace": "shop",
            "labels": {
                "app.kubernetes.io/name": "headrace",
                "headrace.dev/flow": "orders",
                "headrace.dev/type": "SourceTask",
                "headrace.dev/target-cluster": "west-id",
            },
            "annotations": {"headrace.dev/target-topics": "east.a\neast.b"},
            "ownerReferences": [
                {
                    "apiVersion": "headrace.dev/v1beta1",
                    "kind": "ReplicationFlow",
                    "name": "orders",
                    "uid": "u-1",
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "flowName": "orders",
            "type": "SourceTask",
            "index": 3,
            "taskCount": 8,
            "partitions": [
                {"topic": "a", "partitions": "0-3"},
                {"topic": "b", "partitions": "7"},
            ],
            "connectorEpoch": 4,
        },
    }
    assert parse(ReplicationTask, task).spec.partitions == tuple(held)


def test_a_task_that_writes_no_topic_of_its_own() -> None:
    task = TaskBuilder(FLOW, TaskType.HEARTBEAT_TASK, 1).build(0, [])
    assert "headrace.dev/target-cluster" not in task["metadata"]["labels"]
    assert task["metadata"]["annotations"] == {}


def test_selectors() -> None:
    assert selector("orders", TaskType.SOURCE_TASK) == (
        "headrace.dev/flow=orders,headrace.dev/type=SourceTask"
    )
    assert other_flows_selector("orders", "west-id") == (
        "headrace.dev/target-cluster=west-id,headrace.dev/flow!=orders"
    )


def test_a_task_says_what_is_wanted_whatever_its_epoch() -> None:
    held = [TopicPartitions(topic="a", partitions="0-3")]
    builder = TaskBuilder(FLOW, TaskType.SOURCE_TASK, 4, "west-id")
    task = parse(ReplicationTask, builder.build(3, held))
    later = TaskBuilder(FLOW, TaskType.SOURCE_TASK, 5, "west-id")
    assert matches(task, later.build(3, held))
    assert not matches(task, later.build(3, [TopicPartitions(topic="a", partitions="0-2")]))
    assert not matches(task, TaskBuilder(FLOW, TaskType.SOURCE_TASK, 5, "other").build(3, held))
    more = TaskBuilder(FLOW, TaskType.SOURCE_TASK, 5, "west-id", 8)
    assert not matches(task, more.build(3, held)), "its part of the bandwidth is another"
