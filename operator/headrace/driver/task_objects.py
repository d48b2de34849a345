"""ReplicationTasks as a connector writes them: pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.api import (
    API_VERSION,
    FLOW_LABEL,
    SOURCE_LABEL,
    TARGET_LABEL,
    TOPICS_ANNOTATION,
    TYPE_LABEL,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    TaskType,
    TopicPartitions,
    Work,
    dump_work,
    label_value,
)
from headrace.assign import TaskId
from headrace.k8s import Object, owner_reference
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
    task_count: int = 0
    """How many tasks of the kind there are."""
    source_cluster_id: str = ""
    """Of tasks that write topics of their own."""

    def build(self, index: int, work: Sequence[Work]) -> Object:
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
            if self.source_cluster_id:
                labels[SOURCE_LABEL] = label_value(self.source_cluster_id)
            annotations[TOPICS_ANNOTATION] = "\n".join(self._target_topics(work))
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
                "taskCount": self.task_count,
                **_dump(ReplicationTaskSpec.of_work(self.type, work)),
                "connectorEpoch": self.connector_epoch,
            },
        }

    def _target_topics(self, work: Iterable[Work]) -> list[str]:
        spec = self.flow.spec
        policy = policy_for(spec.replication_policy, spec.source.alias)
        packed = [one for one in work if isinstance(one, TopicPartitions)]
        return sorted({policy.target_topic(one.topic) for one in packed})


def _dump(fields: Mapping[str, Sequence[Work]]) -> Object:
    return {name: [dump_work(one) for one in work] for name, work in fields.items()}


def matches(task: ReplicationTask, object: Object) -> bool:
    """Whether a task is as its connector wants it, whatever the epoch."""
    wanted = object["metadata"]
    labels: dict[str, str] = wanted["labels"]
    annotations: dict[str, str] = wanted["annotations"]
    return (
        task.spec.task_count == object["spec"]["taskCount"]
        and _dump(ReplicationTaskSpec.of_work(task.spec.type, task.spec.work)).items()
        <= object["spec"].items()
        and labels.items() <= task.metadata.labels.items()
        and annotations.items() <= task.metadata.annotations.items()
    )
