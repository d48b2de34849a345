"""What every unit of one flow shares on one driver."""

import time
from functools import cached_property
from pathlib import Path

from headrace.api import ClusterAccess, ReplicationFlow, ReplicationFlowSpec
from headrace.api.partitions import TopicPartition
from headrace.clock import Clock
from headrace.connect.handover import DriverIdentity
from headrace.connect.stall_detector import StallDetector
from headrace.kafka import Admin
from headrace.movers import ProgressLog
from headrace.replication import TopicFilter, policy_for
from headrace.replication.progress import ProgressKey


class FlowContext:
    """Clients and names of a flow. Cluster ids are asked for once, when first needed."""

    def __init__(
        self,
        flow: ReplicationFlow,
        driver: DriverIdentity,
        secrets: Path | None = None,
        *,
        clock: Clock = time,
    ) -> None:
        """``secrets``: the folder of Secrets, ``<name>/<key>``."""
        self.clock = clock
        self.driver = driver
        spec = flow.spec
        self.policy = policy_for(spec.policy, spec.source.alias)
        self.change(flow)
        self.source_access = ClusterAccess(spec.source, "spec.source", secrets)
        self.target_access = ClusterAccess(spec.target, "spec.target", secrets)
        self.source = Admin(self.source_access)
        self.target = Admin(self.target_access)
        self.progress = ProgressLog(self.target_access, spec.source.alias)
        self.stall_detector = StallDetector(clock)
        self._absent: set[str] = set()

    def change(self, flow: ReplicationFlow) -> None:
        """Follow a changed spec, but for its clusters and its policy: those are other clients'."""
        self.flow = flow
        topics, alias = flow.spec.topics, flow.spec.target.alias
        self.topics = TopicFilter(topics.include, topics.exclude, self.policy, alias)

    @property
    def spec(self) -> ReplicationFlowSpec:
        """The flow's spec."""
        return self.flow.spec

    @property
    def name(self) -> str:
        """The flow's name."""
        return self.flow.metadata.name

    @cached_property
    def source_cluster_id(self) -> str:
        """Raises ``Retriable`` while no broker answers."""
        return self.source.cluster_id()

    @cached_property
    def target_cluster_id(self) -> str:
        """Raises ``Retriable`` while no broker answers."""
        return self.target.cluster_id()

    def progress_key(self, at: TopicPartition) -> ProgressKey:
        """Where the progress of a partition is stored."""
        return ProgressKey(
            self.source_cluster_id, at.topic, at.partition, self.policy.target_topic(at.topic)
        )

    def purge_progress(self) -> int:
        """Delete the progress of topics that the source does not have any more.

        Not of topics that were deleted and made again: their old progress is how that is noticed.
        A topic counts as gone when the source denied it by name, in two calls running: a list may
        leave topics out for a moment, or for want of rights.
        """
        stored = self.progress.topics(self.source_cluster_id)
        absent = stored - self.source.topics().keys()
        absent -= self.source.describe(absent).keys()
        gone, self._absent = absent & self._absent, absent
        return self.progress.purge(self.source_cluster_id, gone)

    def close(self) -> None:
        """Stop following progress."""
        self.progress.close()
