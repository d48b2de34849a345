"""ReplicationTasks as a connector writes them: pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.api import (
    API_VERSION,
    FLOW_LABEL,
    TARGET_LABEL,
    TOPICS_ANNOTATION,
    TYPE_LABEL,
    ReplicationFlow,
    ReplicationTask,
    TaskType,
    TopicPartitions,
    label_value,
)
from headrace.assign import TaskId
from headrace.k8s import Object, dump, owner_reference
from headrace.replication import policy_for


def selector(flow: str, type: TaskType) -> str:
    """Of the tasks of one kind of one flow."""
    return f"{FLOW_LABEL}={label_value(flow)},{TYPE_LABEL}={type}"


def others_selector(flow: str, cluster_id: str) -> str:
    """Of the tasks of other flows that write to one target cluster."""
    return f"{TARGET_LABEL}={label_value(cluster_id)},{FLOW_LABEL}!={label_value(flow)}"


@dataclass(frozen=True)
class TaskBuilder:
    """Builds the tasks of one kind of one flow, for one connector."""

    flow: ReplicationFlow
    type: TaskType
    connector_epoch: int
    target_cluster_id: str = ""
    """Of tasks that write topics of their own."""

    def build(self, index: int, partitions: Sequence[TopicPartitions]) -> Object:
        """The connector's fields of a task; its assignment is the operator's."""
        flow = self.flow.metadata.name
        labels = {
            "app.kubernetes.io/name": "headrace",
            FLOW_LABEL: label_value(flow),
            TYPE_LABEL: str(self.type),
        }
        annotations = {}
        if self.target_cluster_id:
            labels[TARGET_LABEL] = label_value(self.target_cluster_id)
            annotations[TOPICS_ANNOTATION] = "\n".join(self._target_topics(partitions))
        return {
            "apiVersion": API_VERSION,
            "kind": "ReplicationTask",
            "metadata": {
                "name": TaskId(flow, self.type, index).name,
                "namespace": self.flow.metadata.namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner_reference(self.flow)],
            },
            "spec": {
                "flowName": flow,
                "type": str(self.type),
                "index": index,
                "partitions": [dump(packed) for packed in partitions],
                "connectorEpoch": self.connector_epoch,
            },
        }

    def _target_topics(self, partitions: Iterable[TopicPartitions]) -> list[str]:
        spec = self.flow.spec
        policy = policy_for(spec.policy, spec.source.alias)
        return sorted({policy.target_topic(packed.topic) for packed in partitions})


def matches(task: ReplicationTask, object: Object) -> bool:
    """Whether a task is as its connector wants it, whatever the epoch."""
    wanted = object["metadata"]
    labels: dict[str, str] = wanted["labels"]
    annotations: dict[str, str] = wanted["annotations"]
    return (
        [dump(packed) for packed in task.spec.partitions] == object["spec"]["partitions"]
        and labels.items() <= task.metadata.labels.items()
        and annotations.items() <= task.metadata.annotations.items()
    )
