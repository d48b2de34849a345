"""Finds flows that write to the same target topic.

A connector also checks its target topics before it creates tasks (``driver/kubernetes_herder.py``).
Only the check in this module detects two connectors that check at the same time, and flows of
different namespaces.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from headrace.api import (
    HEARTBEATS,
    SOURCE_LABEL,
    TARGET_LABEL,
    TOPICS_ANNOTATION,
    FlowState,
    ReplicationFlow,
    ReplicationTask,
    TaskType,
)
from headrace.replication import CopiedTopics
from headrace.status import TakenTarget

FlowName = tuple[str, str]
"""Namespace and name."""
Target = tuple[str, str]
"""Cluster id, in the form of a label, and name of a target topic."""
_NEVER = datetime.max.replace(tzinfo=UTC)


def taken_target(
    flow: ReplicationFlow,
    others: Iterable[ReplicationFlow],
    written: Callable[[FlowName], frozenset[Target]],
) -> TakenTarget | None:
    """Return the first target topic of ``flow`` that an earlier flow of ``others`` also writes.

    Return None if there is none. ``written`` returns the targets of a flow. Stopped flows are
    ignored, so that a flow can succeed another one.
    """
    mine = written(flow_name(flow))
    earlier = [
        other
        for other in others
        if mine and flow_age(other) < flow_age(flow) and other.spec.state is not FlowState.STOPPED
    ]
    for other in sorted(earlier, key=flow_age):
        if common := mine & written(flow_name(other)):
            return TakenTarget(other, min(common)[1])
    return None


def written_targets(tasks: Iterable[ReplicationTask]) -> frozenset[Target]:
    """Return the targets that these units write, except heartbeats.

    Every flow of a source copies heartbeats, and receiving them twice is harmless.
    """
    return frozenset(
        (cluster, topic)
        for task in tasks
        if (cluster := task.metadata.labels.get(TARGET_LABEL))
        for topic in task.metadata.annotations.get(TOPICS_ANNOTATION, "").split("\n")
        if topic and topic != HEARTBEATS and not topic.endswith(f".{HEARTBEATS}")
    )


def copied_topics(tasks: Iterable[ReplicationTask]) -> CopiedTopics:
    """Return the topics that these units copy."""
    copying = [task for task in tasks if task.spec.type is TaskType.SOURCE_TASK]
    labels = copying[0].metadata.labels if copying else {}
    return CopiedTopics(
        labels.get(SOURCE_LABEL, ""),
        labels.get(TARGET_LABEL, ""),
        frozenset(one.topic for task in copying for one in task.spec.partitions),
    )


def flow_name(flow: ReplicationFlow) -> FlowName:
    """Return the namespace and the name of a flow."""
    return flow.metadata.namespace, flow.metadata.name


def flow_age(flow: ReplicationFlow) -> tuple[datetime, FlowName]:
    """Return a sort key that puts the older flow first."""
    return flow.metadata.creation_timestamp or _NEVER, flow_name(flow)
