"""Run of a mirror test, and the values that its test takes from a flow.

A resolved test contains its clusters. If a test has a ``flowName``, ``resolve`` fills in the
clusters and topic names of the flow.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from headrace.api import (
    COMMIT_INTERVAL_ANNOTATION,
    FLOW_CHANGES_ANNOTATION,
    FLOW_LABEL,
    Audit,
    ChaosAction,
    ClusterAccess,
    ClusterSpec,
    DeliveryMode,
    MirrorTest,
    Model,
    Partitioning,
    ReplicationFlow,
)
from headrace.api.offsets import OffsetsMode
from headrace.errors import InvalidSpec
from headrace.mirror_test.flow_changes import FlowChanges
from headrace.mirror_test.load import load_topics
from headrace.replication import policy_for


class MirrorTestRun(Model):
    """Run of a resolved test."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,20}$")]
    """Name of the run. The ids of the run's producers begin with it."""
    test: MirrorTest
    secrets: Path | None = None
    """Folder of Secrets, with a file ``<name>/<key>`` for each key."""

    @property
    def source(self) -> ClusterAccess:
        """Source cluster. Raise ``InvalidSpec`` if the test does not contain it."""
        return self._resolved(self.test.spec.source, "spec.source")

    @property
    def target(self) -> ClusterAccess:
        """Target cluster. Raise ``InvalidSpec`` if the test does not contain it."""
        return self._resolved(self.test.spec.target, "spec.target")

    @property
    def knows_target(self) -> bool:
        """False if the run only sends a load, without knowledge of the target."""
        return self.test.spec.target is not None

    def without_target(self) -> "MirrorTestRun":
        """Return the run without its target, which is not needed to send a load."""
        spec = self.test.spec.model_copy(update={"target": None})
        return self.model_copy(update={"test": self.test.model_copy(update={"spec": spec})})

    @property
    def flow(self) -> str | None:
        """Name of the flow under test, or None if the test names no flow."""
        return self.test.metadata.annotations.get(FLOW_LABEL)

    @property
    def changes(self) -> FlowChanges:
        """Changes that the flow under test makes to copies on purpose.

        Raise ``InvalidSpec`` if the test has an invalid annotation.
        """
        return FlowChanges.of_test(self.test)

    @property
    def first_topics(self) -> dict[str, str]:
        """Topics that exist when the load begins: target names by source names."""
        return self._copies(load_topics(self.test))

    @property
    def added_topics(self) -> dict[str, str]:
        """Topics that chaos steps add, in the order of the steps.

        Target names by source names. Each run has different topics.
        """
        steps = [s for s in self.test.spec.chaos if s.action is ChaosAction.ADD_TOPIC]
        test = self.test.metadata.name
        return self._copies(f"{test}-{self.name}-{n}" for n in range(len(steps)))

    @property
    def topics(self) -> dict[str, str]:
        """All topics of the load: target names by source names."""
        return self.first_topics | self.added_topics

    def check_clusters(self, source_id: str, target_id: str) -> None:
        """Raise ``InvalidSpec`` if source and target have the same cluster id."""
        if source_id == target_id:
            raise InvalidSpec(
                f"{self.source.alias} ({self.source.bootstrap_servers}) and {self.target.alias} "
                f"({self.target.bootstrap_servers}) are one cluster (id {source_id}): "
                "a mirror test needs two"
            )

    def _copies(self, names: Iterable[str]) -> dict[str, str]:
        template, alias = self.test.spec.target_topic, self.source.alias
        return {name: template.format(source=alias, topic=name) for name in names}

    def _resolved(self, cluster: ClusterSpec | None, field: str) -> ClusterAccess:
        if cluster is None:
            raise InvalidSpec(
                f"test {self.test.metadata.name} names a flow instead of its clusters: "
                "`headrace verify` finds the flow and resolves it; a job alone cannot"
            )
        return ClusterAccess(cluster, field, self.secrets)


_ANY = "headrace-any-topic"
"""Placeholder for a topic name, used to derive the template of a replication policy."""


def resolve(test: MirrorTest, flow: ReplicationFlow) -> MirrorTest:
    """Return the test with the clusters, topic names and guarantees of a flow, for Spark jobs.

    The result has no ``flowName``. Its annotations contain the name of the flow, the commit
    interval, and the changes that the flow makes to copies. For a load these are the changes of
    headers only: messages that a filter excludes are missing.

    Raises:
        InvalidSpec: The flow's settings do not allow this test.
    """
    spec = test.spec
    budgets = spec.budgets
    annotations = {**test.metadata.annotations, FLOW_LABEL: flow.metadata.name}
    annotations.pop(FLOW_CHANGES_ANNOTATION, None)
    changes = FlowChanges.of(flow) if spec.audit else FlowChanges(headers=flow.spec.headers)
    annotations |= changes.annotation()
    if flow.spec.delivery.mode is DeliveryMode.EXACTLY_ONCE:
        annotations[COMMIT_INTERVAL_ANNOTATION] = str(flow.spec.delivery.commit_interval_ms)
        if budgets.duplicated is None:
            budgets = budgets.model_copy(update={"duplicated": 0})
    if (
        flow.spec.offsets.mode is OffsetsMode.PRESERVED
        and spec.partitioning is Partitioning.PRESERVED
        and budgets.unequal_offsets is None
        and spec.audit is None
    ):
        budgets = budgets.model_copy(update={"unequal_offsets": 0})
    if spec.rehearsal and flow.spec.offsets.mode is OffsetsMode.PRESERVED:
        raise InvalidSpec(
            f"{test.metadata.name}: spec.rehearsal is not possible with flow "
            f"{flow.metadata.name}, which has offsets.mode: Preserved: its fail-over writes a "
            "marker at the end of the copies, so it cannot be undone"
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
                    "audit": spec.audit and _audit(flow, spec.audit),
                    # A rehearsal and other steps affect only the flow. Jobs do not use them.
                    "rehearsal": None,
                    "chaos": tuple(step for step in spec.chaos if step.action.is_of_load),
                }
            ),
        }
    )


def _audit(flow: ReplicationFlow, audit: Audit) -> Audit:
    """Return the audit with the topics of the flow, unless the audit names topics."""
    spec = flow.spec
    return audit.model_copy(
        update={
            "topics": audit.topics or spec.topics.include,
            "exclude": (*audit.exclude, *spec.topics.exclude, *_copies_of_target(flow)),
        }
    )


def _copies_of_target(flow: ReplicationFlow) -> tuple[str, ...]:
    """Return the pattern of topics that the flow skips because they come from its target."""
    policy = policy_for(flow.spec.replication_policy, flow.spec.target.alias)
    copy = policy.target_topic(_ANY)
    return () if copy == _ANY else (re.escape(copy).replace(re.escape(_ANY), ".+"),)


def _template(test: MirrorTest, flow: ReplicationFlow) -> str:
    """Return the flow's template for target topic names.

    Raises:
        InvalidSpec: No template fits all topics of the load.
    """
    policy = policy_for(flow.spec.replication_policy, flow.spec.source.alias)
    template = policy.target_topic(_ANY).replace(_ANY, "{topic}")
    for topic in () if test.spec.audit else load_topics(test):
        if (copy := policy.target_topic(topic)) != template.format(topic=topic):
            raise InvalidSpec(
                f"flow {flow.metadata.name} copies topic {topic} as {copy}, and others as "
                f"{template}: a mirror test requires topics with the same naming; use other topics"
            )
    return template
