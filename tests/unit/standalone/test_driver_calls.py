"""Calls of drivers to the herder of a run."""

from typing import Any
from unittest.mock import Mock

from support.source_tasks import FLOW

from headrace.api import TaskType, TopicPartitions, dump, dump_work
from headrace.standalone.driver_calls import DriverCalls
from headrace.standalone.task_store import TaskStore


def test_a_target_topic_that_a_flow_has_left_is_free() -> None:
    store = TaskStore()
    calls = DriverCalls(lambda _: FLOW, store, Mock(), Mock(), lambda _: None)
    for name in ("a", "b"):
        store.put(name, TaskType.SOURCE_CONNECTOR)
    connectors = {task.spec.flow_name: task for task in store}

    def publish(flow: str, *topics: str) -> dict[str, Any]:
        work = [dump_work(TopicPartitions(topic=topic, partitions="0")) for topic in topics]
        message = {
            "connector": dump(connectors[flow]),
            "type": TaskType.SOURCE_TASK,
            "tasks": {0: work},
            "targetTopics": {"T": topics},
        }
        return calls.answer(Mock(), "put-tasks", message)

    assert publish("a", "left", "kept") == {}
    assert publish("b", "left")["error"] == "TargetTaken"
    assert publish("a", "kept") == {}
    assert publish("b", "left") == {}
    assert publish("b", "left", "kept")["error"] == "TargetTaken"
