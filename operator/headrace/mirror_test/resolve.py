"""A mirror test of one of our flows, with all that it takes from the flow written out."""

from headrace.api import (
    COMMIT_INTERVAL_ANNOTATION,
    FLOW_LABEL,
    ClusterSpec,
    DeliveryMode,
    MirrorTest,
    Partitioning,
    ReplicationFlow,
)
from headrace.api.offsets import OffsetsMode
from headrace.errors import InvalidSpec
from headrace.mirror_test.load_topics import load_topics
from headrace.replication import policy_for

_ANY = "headrace-any-topic"
"""A name that stands for all: what a policy makes of it, it makes of others."""


def resolve(test: MirrorTest, flow: ReplicationFlow) -> MirrorTest:
    """The test with clusters, topic names and guarantees of ``flow``, as its Spark jobs need it.

    It has no ``flowName``; annotations have the name of the flow, and how often it commits.
    """
    spec = test.spec
    budgets = spec.budgets
    annotations = {**test.metadata.annotations, FLOW_LABEL: flow.metadata.name}
    if flow.spec.delivery.mode is DeliveryMode.EXACTLY_ONCE:
        annotations[COMMIT_INTERVAL_ANNOTATION] = str(flow.spec.delivery.commit_interval_ms)
        if budgets.duplicated is None:
            budgets = budgets.model_copy(update={"duplicated": 0})
    if (
        flow.spec.offsets.mode is OffsetsMode.PRESERVED
        and spec.partitioning is Partitioning.PRESERVED
        and budgets.unequal_offsets is None
    ):
        budgets = budgets.model_copy(update={"unequal_offsets": 0})
    if spec.rehearsal and flow.spec.offsets.mode is OffsetsMode.PRESERVED:
        raise InvalidSpec(
            f"{test.metadata.name}: spec.rehearsal does not go with flow {flow.metadata.name}, "
            "which has offsets.mode: Preserved: its fail-over ends the copies with a marker, so "
            "that it cannot be undone"
        )
    target = flow.spec.target
    return test.model_copy(
        update={
            "metadata": test.metadata.model_copy(update={"annotations": annotations}),
            "spec": spec.model_copy(
                update={
                    "flow_name": None,
                    "source": flow.spec.source,
                    "target": ClusterSpec.model_validate(
                        {name: getattr(target, name) for name in ClusterSpec.model_fields}
                    ),
                    "target_topic": _template(test, flow),
                    "budgets": budgets,
                    # The others are about the flow, which the jobs need not know.
                    "rehearsal": None,
                    "chaos": tuple(step for step in spec.chaos if step.action.is_of_load),
                }
            ),
        }
    )


def _template(test: MirrorTest, flow: ReplicationFlow) -> str:
    """How the flow names topics; ``InvalidSpec`` when it names one of the load's otherwise."""
    policy = policy_for(flow.spec.replication_policy, flow.spec.source.alias)
    template = policy.target_topic(_ANY).replace(_ANY, "{topic}")
    for topic in load_topics(test):
        if (copy := policy.target_topic(topic)) != template.format(topic=topic):
            raise InvalidSpec(
                f"flow {flow.metadata.name} copies topic {topic} as {copy}, and others as "
                f"{template}: a mirror test needs topics that are all named alike; give it others"
            )
    return template
