"""The connectors of a flow, as ReplicationTasks; they write the tasks of their kinds themselves."""

from headrace.api import API_VERSION, TYPE_LABEL, ReplicationFlow, TaskType
from headrace.assign import TaskId
from headrace.controller.resources.metadata import build_metadata
from headrace.k8s import Object

CONNECTORS = (
    TaskType.SOURCE_CONNECTOR,
    TaskType.CHECKPOINT_CONNECTOR,
    TaskType.HEARTBEAT_CONNECTOR,
)
"""``standalone/herder.py`` makes the same."""


def build_connector(flow: ReplicationFlow, type: TaskType) -> Object:
    """A connector: what it is. Where it runs is written apart, by another field manager."""
    metadata = build_metadata(flow, TaskId(flow.metadata.name, type, 0).name)
    metadata["labels"][TYPE_LABEL] = type.value
    return {
        "apiVersion": API_VERSION,
        "kind": "ReplicationTask",
        "metadata": metadata,
        "spec": {"flowName": flow.metadata.name, "type": type.value, "index": 0},
    }
