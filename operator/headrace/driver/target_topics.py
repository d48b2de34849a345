"""Two flows that write one target topic: found by the target topics in the tasks of others.

Progress would show only flows of one source. Flows of other namespaces are not read.
"""

from collections.abc import Mapping, Set

from headrace.api import FLOW_LABEL, TOPICS_ANNOTATION
from headrace.connect import TargetTaken
from headrace.driver.task_objects import others_selector
from headrace.k8s import TASK, Client, Object

_TO_BE_RUN = "spec.driverName!="
"""Not those of a flow that is stopped."""


async def check_not_taken(
    client: Client, namespace: str, flow: str, topics: Mapping[str, Set[str]]
) -> None:
    """``topics`` by target cluster id; raises ``TargetTaken`` when another flow writes one."""
    for cluster_id, mine in topics.items():
        selected = others_selector(flow, cluster_id)
        for task in await client.list(
            TASK, namespace, labels=selected, fields=_TO_BE_RUN, metadata_only=True
        ):
            if shared := mine & _target_topics(task):
                writer = task["metadata"]["labels"][FLOW_LABEL]
                raise TargetTaken.by(writer, flow, shared, cluster_id)


def _target_topics(task: Object) -> set[str]:
    return set(task["metadata"].get("annotations", {}).get(TOPICS_ANNOTATION, "").split("\n"))
