"""A mirror test of one of our flows, with all that it takes from the flow written out."""

from headrace.api import FLOW_LABEL, ClusterSpec, Delivery, MirrorTest, ReplicationFlow
from headrace.replication import policy_for


def resolve(test: MirrorTest, flow: ReplicationFlow) -> MirrorTest:
    """The test with clusters, topic names and guarantees of ``flow``, as its Spark jobs need it.

    It has no ``flowName``; an annotation has the name of the flow.
    """
    spec = test.spec
    policy = policy_for(flow.spec.policy, flow.spec.source.alias)
    budgets = spec.budgets
    if budgets.duplicated is None and flow.spec.delivery is Delivery.EXACTLY_ONCE:
        budgets = budgets.model_copy(update={"duplicated": 0})
    target = flow.spec.target
    annotations = {**test.metadata.annotations, FLOW_LABEL: flow.metadata.name}
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
                    "target_topic": policy.target_topic("{topic}"),
                    "budgets": budgets,
                    "chaos": (),
                }
            ),
        }
    )
