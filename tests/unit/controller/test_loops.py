"""Selection of the flow that is rejected in a loop, and of the flows that are checked again."""

from datetime import UTC, datetime
from typing import Any, cast

from headrace.api import (
    Condition,
    ConditionStatus,
    ConditionType,
    ObjectMeta,
    Reason,
    ReplicationFlow,
    ReplicationFlowStatus,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
    TopicPartitions,
)
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.loops import Loops
from headrace.controller.target_topics import FlowName, copied_topics, flow_name
from headrace.replication import CopiedTopics

THERE, BACK, OTHER = ("shop", "there"), ("depot", "back"), ("shop", "other")
CLUSTERS = {"there": ("E", "W"), "back": ("W", "E"), "other": ("E", "N")}


class Cache:
    """Cache of flows with one unit each."""

    def __init__(self) -> None:
        self.all: dict[FlowName, ReplicationFlow] = {}
        self.units: dict[FlowName, ReplicationTask] = {}

    def put(
        self, name: FlowName, *topics: str, driver: str = "", day: int = 1, **spec: Any
    ) -> None:
        source, target = CLUSTERS[name[1]]
        flow = ReplicationFlow.model_validate(
            {
                "metadata": {"namespace": name[0], "name": name[1]},
                "spec": {
                    "source": {
                        "alias": source.lower(),
                        "bootstrapServers": f"{name[1]}-{source}:1",
                    },
                    "target": {
                        "alias": target.lower(),
                        "bootstrapServers": f"{name[1]}-{target}:1",
                    },
                    "topics": {"include": [".*"]},
                    "replicationPolicy": {"type": "Identity"},
                    **spec,
                },
            }
        )
        since = {"creation_timestamp": datetime(2026, 1, day, tzinfo=UTC)}
        metadata = flow.metadata.model_copy(update=since)
        self.all[name] = flow.model_copy(update={"metadata": metadata})
        labels = {"headrace.dev/source-cluster": source, "headrace.dev/target-cluster": target}
        self.units[name] = ReplicationTask(
            metadata=ObjectMeta(name="x", labels=labels),
            spec=ReplicationTaskSpec(
                flow_name=name[1],
                type=TaskType.SOURCE_TASK,
                driver_name=driver,
                partitions=tuple(TopicPartitions(topic=one, partitions="0") for one in topics),
            ),
            status=ReplicationTaskStatus(driver_name=driver),
        )

    def refuse(self, name: FlowName) -> None:
        """Set the status of a flow that was rejected because of a loop."""
        stalled = Condition(
            type=ConditionType.READY,
            status=ConditionStatus.FALSE,
            reason=Reason.REPLICATION_LOOP,
            message="",
        )
        status = ReplicationFlowStatus(conditions=(stalled,))
        self.all[name] = self.all[name].model_copy(update={"status": status})

    def flows(self) -> list[ReplicationFlow]:
        return list(self.all.values())

    def valid_flow(self, name: FlowName) -> ReplicationFlow | None:
        return self.all.get(name)

    def tasks(self, flow: ReplicationFlow) -> list[ReplicationTask]:
        return [self.units[flow_name(flow)]]

    def copied(self, name: FlowName) -> CopiedTopics:
        return copied_topics([self.units[name]] if name in self.all else ())

    def refused(self) -> list[FlowName]:
        loops = Loops(cast(ClusterCache, self))
        return [name for name, flow in self.all.items() if loops.refusal(flow)]


def test_the_later_one_is_refused_and_told_of_the_other() -> None:
    cache = Cache()
    narrow = {"include": ["orders.*"]}
    cache.put(THERE, "orders", day=1, topics=narrow)
    cache.put(BACK, "bills", day=2)
    cache.put(OTHER, "orders", day=3)
    assert cache.refused() == [BACK], "of other clusters, and by other addresses"
    assert Loops(cast(ClusterCache, cache)).refusal(cache.all[BACK]) == (
        "records of orders would go round: this flow copies it as orders, flow there of namespace "
        "shop copies that back as orders, which this flow copies again; exclude one of them in "
        "spec.topics of its flow, or stop one of the flows (spec.state: Stopped)"
    )
    cache.put(BACK, "bills", day=2, topics={"include": [".*bills"]})
    assert cache.refused() == [], "it was narrowed"
    cache.put(THERE, "orders", "orders-bills", day=1, topics=narrow)
    assert cache.refused() == [BACK], "a topic that was made later"


def test_names_that_differ_are_no_loop() -> None:
    cache = Cache()
    for name in (THERE, BACK):
        cache.put(name, "orders", replicationPolicy={"type": "Default"})
    assert cache.refused() == []


def test_a_flow_that_is_started_again_gives_way_to_the_flow_back() -> None:
    cache = Cache()
    cache.put(THERE, "orders", day=1, state="Stopped")
    cache.put(BACK, "orders", day=2, driver="d")
    assert cache.refused() == [], "failed over, and reversed"
    cache.put(THERE, "orders", day=1)
    assert cache.refused() == [THERE]
    cache.refuse(THERE)
    cache.put(BACK, "orders", day=2)
    assert cache.refused() == [THERE], "while all drivers of the other one are lost, too"
    cache.put(BACK, "orders", day=2, state="Stopped", driver="d")
    assert cache.refused() == [THERE], "as long as a unit is held"
    cache.put(BACK, "orders", day=2, state="Stopped")
    assert cache.refused() == []


def test_of_two_that_run_already_the_older_one_goes_on() -> None:
    cache = Cache()
    cache.put(THERE, "orders", day=2, driver="d")
    cache.put(BACK, "orders", day=1, driver="d")
    assert cache.refused() == [THERE]


def test_those_in_the_other_direction_are_asked_again_when_something_changed() -> None:
    cache = Cache()
    loops = Loops(cast(ClusterCache, cache))
    for name in (THERE, BACK, OTHER):
        cache.put(name, "orders", driver="d")
    assert loops.concerned(THERE) == [BACK]
    assert loops.concerned(THERE) == [], "nothing changed"
    cache.put(THERE, "orders", "bills", driver="d")
    assert loops.concerned(THERE) == [BACK], "a topic"
    cache.put(THERE, "orders", "bills", driver="d", state="Stopped")
    assert loops.concerned(THERE) == [BACK], "its state"
    cache.put(THERE, "orders", "bills", state="Stopped")
    assert loops.concerned(THERE) == [BACK], "it holds nothing any more"
    cache.refuse(THERE)
    assert loops.concerned(THERE) == [], "nothing that loops depend on"
    del cache.all[THERE]
    assert loops.concerned(THERE) == [BACK], "gone"
    assert loops.concerned(THERE) == []
