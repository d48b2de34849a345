"""Behaviour of the source connector. Clusters and herder are fakes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_kafka import MARKER, FakeKafka

from headrace.api import (
    HEARTBEATS,
    ConditionStatus,
    ConditionType,
    LossCause,
    ObjectMeta,
    Policy,
    Reason,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    Resets,
    TaskType,
    TopicPartitions,
)
from headrace.api.partitions import TopicPartition
from headrace.connect import DriverIdentity, TargetTaken
from headrace.connect.runtime.ownership import Ownership
from headrace.connect.source.source_connector import SourceConnector
from headrace.errors import InvalidSpec, Retriable
from headrace.replication import Progress, ProgressKey, TopicFilter, policy_for
from headrace.replication.ancestry import AncestryKey, Descent
from headrace.standalone.task_store import TaskStore

NOTHING = ReplicationTaskStatus()


class FakeProgress:
    """Stored progress of the source, which was read."""

    was_read = True

    def __init__(self) -> None:
        self.table: dict[ProgressKey, Progress] = {}
        self.ancestry: dict[bytes, bytes | None] = {}

    def stored(self, source_cluster_id: str) -> dict[ProgressKey, Progress]:
        return dict(self.table)

    def read_to_end(self) -> None: ...

    def write(self, entries: Mapping[ProgressKey, Progress]) -> None:
        self.table |= entries

    def purge(self, keys: Iterable[ProgressKey]) -> None:
        for key in keys:
            del self.table[key]

    def hops(self, flow: AncestryKey, now_ms: int) -> dict[str, Descent]:
        return {}

    def send_ancestry(self, records: Mapping[bytes, bytes | None]) -> SimpleNamespace:
        self.ancestry |= records
        return SimpleNamespace(wait=lambda: None)


class FakeHerder:
    """Herder with the store of ``headrace run``. Its tasks act when a test calls ``work``."""

    def __init__(self) -> None:
        self.store = TaskStore()
        self.answer_is_lost = False
        self.taken: set[str] = set()
        """Topics that another flow writes."""
        self.reported: Callable[[ReplicationTaskStatus], None] = lambda status: None
        self.claim = self.release = None

    def tasks(self) -> dict[int, ReplicationTask]:
        return {task.spec.index: task for task in self.store.of_flow("f")}

    def split(self) -> dict[int, list[int]]:
        return {
            index: sorted(at.partition for at in TopicPartitions.unpack(task.spec.partitions))
            for index, task in sorted(self.tasks().items())
        }

    def work(self, *indices: int) -> None:
        """Let these tasks (or all) apply their spec and report it."""
        for task in self.tasks().values():
            if not indices or task.spec.index in indices:
                status = ReplicationTaskStatus(
                    driver_name="d",
                    driver_incarnation="1",
                    epoch=task.status.epoch or 1,
                    partitions=task.spec.partitions,
                    observed_generation=task.metadata.generation,
                )
                self.store.write_status(task, status)

    def report(self, task: ReplicationTask, status: ReplicationTaskStatus) -> ReplicationTask:
        self.reported(status)
        return task

    def list_tasks(self, connector: ReplicationTask, type: TaskType) -> list[ReplicationTask]:
        return self.store.of_flow("f")

    def put_tasks(
        self,
        connector: ReplicationTask,
        type: TaskType,
        tasks: Mapping[int, Sequence[TopicPartitions]],
        target_topics: Mapping[str, Sequence[str]],
        source_cluster_id: str = "",
    ) -> None:
        if met := self.taken.intersection(*target_topics.values()):
            raise TargetTaken.by("other", "f", met, "W")
        self.store.put_tasks(connector, type, tasks)
        if self.answer_is_lost:
            self.answer_is_lost = False
            raise Retriable("the herder did not answer within 5 s")


def key_of(at: TopicPartition) -> ProgressKey:
    return ProgressKey("E", at.topic, at.partition, f"east.{at.topic}")


class Scene:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.herder = FakeHerder()
        policy = policy_for(Policy(), "east")
        self.source, self.target = FakeKafka("east", "west").clusters.values()
        self.target.defaults = {"retention.ms": "604800000", "cleanup.policy": "delete"}
        self.context: Any = SimpleNamespace(
            name="f",
            clock=SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: self.now_s),
            now_ms=1_000_000,
            resets=Resets({}),
            progress=FakeProgress(),
            progress_key=key_of,
            policy=policy,
            topics=TopicFilter(["orders.*"], [], policy, "west"),
            source=self.source,
            target=self.target,
            source_cluster_id="E",
            check_brokers=lambda: None,
            target_cluster_id="W",
            clients=SimpleNamespace(rights=self._no_rights),
            source_access=None,
            target_access=None,
            driver=DriverIdentity("d", "1", rack="a"),
            preserved=False,
        )
        self.asks_for(max=2, movementBudget=0.5)
        self.connector = self.start(epoch=1)

    def _no_rights(self, access: object) -> None:
        raise Retriable("what may be done here is not asked")

    def asks_for(
        self,
        dead_letter_topic: str | None = None,
        topic_configs: Mapping[str, object] = {},
        **tasks: object,
    ) -> None:
        source = {"alias": "east", "bootstrapServers": "east:9092"}
        target = {"alias": "west", "bootstrapServers": "west:9092"}
        topics = {"include": ["orders.*"]}
        spec = {"source": source, "target": target, "topics": topics, "tasks": tasks}
        spec["topicConfigs"] = topic_configs
        if dead_letter_topic is not None:
            spec |= {
                "onRecordError": {"action": "DeadLetter", "deadLetterTopic": dead_letter_topic}
            }
        flow = {"metadata": {"name": "f"}, "spec": spec}
        self.context.flow = ReplicationFlow.model_validate(
            {"apiVersion": "headrace.dev/v1beta1", "kind": "ReplicationFlow", **flow}
        )
        self.context.spec = self.context.flow.spec

    def start(self, epoch: int, before: ReplicationTaskStatus = NOTHING) -> SourceConnector:
        task = ReplicationTask(
            metadata=ObjectMeta(name="f-source-connector", generation=1),
            spec=ReplicationTaskSpec(flow_name="f", type=TaskType.SOURCE_CONNECTOR),
            status=before.model_copy(update={"epoch": epoch}),
        )
        herder: Any = self.herder
        ownership = Ownership(task, DriverIdentity("d", "1"), herder)
        return SourceConnector(ownership, self.context, herder, lambda: None)

    def run_once(self, after_s: float = 0.0, **per_second: int) -> float:
        """Run the connector ``after_s`` later.

        ``p3=10`` lets partition 3 grow by ten records a second until then.
        """
        self.now_s += after_s
        for partition, rate in per_second.items():
            at = TopicPartition("orders", int(partition.removeprefix("p")))
            self.source.logs[at].entries += [MARKER] * int(rate * after_s)
        return self.connector.run_once()


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.source.create_topic("orders", 4)
    assert scene.run_once() == 10
    scene.herder.work()
    assert scene.herder.split() == {0: [0, 2], 1: [1, 3]}
    assert scene.target.topics() == {"east.orders": 4}
    return scene


def test_a_partition_moves_in_two_phases_and_no_broker_is_asked_meanwhile(scene: Scene) -> None:
    assert scene.run_once(10, p0=100, p2=100, p1=1, p3=1) == 0.2
    assert scene.herder.split() == {0: [2], 1: [1, 3]}
    asked = scene.source.requests + scene.target.requests
    assert scene.run_once(0.2) == 0.2
    assert scene.herder.split() == {0: [2], 1: [1, 3]}
    scene.herder.work(0)
    assert scene.run_once(0.2) == pytest.approx(9.6)
    assert scene.herder.split() == {0: [2], 1: [0, 1, 3]}
    assert scene.source.requests + scene.target.requests == asked


def test_racks_are_reported_before_the_tasks_that_are_placed_by_them() -> None:
    scene = Scene()
    scene.source.create_topic("orders", 2)
    scene.source.create_topic("other", 1)
    a, b, other = (TopicPartition(*at) for at in (("orders", 0), ("orders", 1), ("other", 0)))
    scene.source.topic_racks = {a: frozenset("ab"), b: frozenset("b"), other: frozenset("a")}
    published: list[tuple[dict[str, list[str]], dict[int, list[int]]]] = []
    scene.herder.reported = lambda status: published.append((of_rack(status), scene.herder.split()))
    scene.connector.ownership.epoch = 1
    scene.run_once()
    racks = {"a": ["orders/0"], "b": ["orders/0-1"]}
    assert published == [(racks, {})]
    assert scene.herder.split() == {0: [0], 1: [1]}

    scene.run_once(10)
    assert scene.source.rack_requests == 1, "nothing is new"
    scene.source.topic_racks[b] = frozenset("a")
    scene.run_once(300)
    assert of_rack(scene.connector.status) == {"a": ["orders/0-1"], "b": ["orders/0"]}

    scene.connector = scene.start(epoch=2, before=scene.connector.status)
    assert of_rack(scene.connector.status) == {"a": ["orders/0-1"], "b": ["orders/0"]}


def test_a_driver_that_knows_no_rack_asks_for_none() -> None:
    scene = Scene()
    scene.context.driver = DriverIdentity("d", "1")
    scene.source.create_topic("orders", 1)
    scene.source.topic_racks = {TopicPartition("orders", 0): frozenset("a")}
    scene.run_once()
    assert (scene.source.rack_requests, scene.connector.status.racks) == (0, ())


def of_rack(status: ReplicationTaskStatus) -> dict[str, list[str]]:
    return {one.rack: list(one.partitions) for one in status.racks}


def test_a_split_that_somebody_else_changed_is_put_right(scene: Scene) -> None:
    split = scene.herder.split()
    by_hand = {0: TopicPartitions.pack([TopicPartition("orders", 1)]), 7: ()}
    connector = scene.connector.ownership.task
    scene.herder.store.put_tasks(connector, TaskType.SOURCE_TASK, by_hand)
    assert scene.herder.split() == {0: [1], 7: []}
    scene.run_once(10)
    assert scene.herder.split() == split


def test_a_topic_that_another_flow_writes_is_named(scene: Scene) -> None:
    scene.herder.taken = {"east.orders-2"}
    scene.source.create_topic("orders-2", 1)
    with pytest.raises(TargetTaken):
        scene.run_once(10)
    (ready,) = scene.connector.status.conditions
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, Reason.TARGET_TOPIC_TAKEN)
    assert "east.orders-2" in ready.message


def test_failed_connector_takes_a_topic_as_soon_as_it_is_free(scene: Scene) -> None:
    scene.herder.taken = {"east.orders-2"}
    scene.source.create_topic("orders-2", 1)
    with pytest.raises(TargetTaken) as failed:
        scene.run_once(10)
    is_gone = scene.connector.has_remedy(failed.value)
    assert is_gone is not None
    assert not is_gone()
    assert "orders-2" not in str(scene.herder.tasks())
    scene.herder.taken = set()
    assert is_gone()
    assert "orders-2" in str(scene.herder.tasks()), "no later flow can take it any more"


def test_failure_of_another_kind_waits_for_its_restart(scene: Scene) -> None:
    assert scene.connector.has_remedy(InvalidSpec("source and target are the same")) is None


def test_heartbeats_that_another_flow_copies_are_left_to_it_for_a_minute(scene: Scene) -> None:
    scene.context.topics = TopicFilter(["orders.*", HEARTBEATS], [], scene.context.policy, "west")
    scene.herder.taken = {f"east.{HEARTBEATS}"}
    scene.source.create_topic(HEARTBEATS, 1)
    assert scene.run_once(10) == 0
    scene.run_once()
    assert scene.herder.split() == {0: [0, 2], 1: [1, 3]}
    scene.herder.taken = set()
    scene.run_once(59)
    assert HEARTBEATS not in str(scene.herder.tasks())
    scene.run_once(10)
    assert HEARTBEATS in str(scene.herder.tasks())


def test_a_partition_that_is_not_released_for_balance_stays(scene: Scene) -> None:
    scene.run_once(10, p0=100, p2=100)
    scene.run_once(9.9)
    assert scene.herder.split() == {0: [2], 1: [1, 3]}
    scene.run_once(0.2)
    assert scene.herder.split() == {0: [0, 2], 1: [1, 3]}


def test_a_partition_that_a_task_that_ends_never_releases_is_taken(scene: Scene) -> None:
    scene.asks_for(max=1)
    scene.run_once(10)
    assert scene.herder.split() == {0: [0, 2], 1: []}
    scene.run_once(9.9)
    assert scene.herder.split() == {0: [0, 2], 1: []}
    scene.run_once(0.2)
    assert scene.herder.split() == {0: [0, 1, 2, 3]}


def test_another_connector_goes_on_with_what_is_published(scene: Scene) -> None:
    scene.run_once(10, p0=100, p2=100, p1=1, p3=1)
    scene.herder.work(0)
    scene.run_once(0.2)
    scene.herder.work()
    scene.connector = scene.start(epoch=2)
    assert scene.run_once() == 0.2  # its new epoch has to be acknowledged
    scene.herder.work()
    assert scene.run_once(0.2) == pytest.approx(9.8)
    for _ in range(10):
        scene.run_once(10, p0=100, p2=100, p1=1, p3=1)
    assert scene.herder.split() == {0: [2], 1: [0, 1, 3]}
    assert {task.spec.connector_epoch for task in scene.herder.tasks().values()} == {2}


def test_what_was_between_two_tasks_goes_back_when_it_is_still_held(scene: Scene) -> None:
    scene.run_once(10, p0=100, p2=100)
    scene.connector = scene.start(epoch=2)
    scene.run_once()
    assert scene.herder.split() == {0: [0, 2], 1: [1, 3]}


def test_what_was_written_is_read_back_when_the_answer_was_lost(scene: Scene) -> None:
    scene.source.add_partitions("orders", 5)
    scene.herder.answer_is_lost = True
    with pytest.raises(Retriable):
        scene.run_once(10)
    # No task has reported yet, and by now the other task would get the new partition.
    scene.run_once(10, p0=100)
    scene.run_once(10)
    assert scene.herder.split() == {0: [0, 2, 4], 1: [1, 3]}


def test_the_number_of_tasks_follows_the_spec(scene: Scene) -> None:
    scene.asks_for(max=1)
    scene.run_once(10)
    assert scene.herder.split() == {0: [0, 2], 1: []}
    scene.herder.work()
    scene.run_once(0.2)
    assert scene.herder.split() == {0: [0, 1, 2, 3]}
    scene.asks_for(max=4, movementBudget=1)
    for _ in range(20):
        scene.herder.work()
        scene.run_once(10)
    assert sorted(scene.herder.split().values()) == [[0], [1], [2], [3]]


def test_a_partition_whose_leader_is_away_does_not_move(scene: Scene) -> None:
    scene.run_once(10, p0=100, p1=100, p2=100, p3=100)
    away = TopicPartition("orders", 3)
    scene.source.silent.add(away)
    scene.run_once(10, p0=100)
    assert scene.herder.split() == {0: [0, 2], 1: [1, 3]}


def test_balancing_uses_the_last_weight_of_a_partition_whose_leader_is_away(scene: Scene) -> None:
    heavy_alone = {0: [0, 1, 2], 1: [3]}
    for _ in range(10):
        scene.run_once(10, p0=100, p1=100, p2=100, p3=300)
        scene.herder.work()
    assert scene.herder.split() == heavy_alone
    scene.source.silent.add(TopicPartition("orders", 3))
    for _ in range(20):
        scene.run_once(10, p0=100, p1=100, p2=100)
        scene.herder.work()
        assert scene.herder.split() == heavy_alone


def test_the_dead_letter_topic_is_made_when_it_is_absent(scene: Scene) -> None:
    scene.asks_for(max=2, dead_letter_topic="dead")
    scene.run_once(10)
    assert scene.target.topics() == {"east.orders": 4, "dead": 1}
    scene.target.add_partitions("dead", 3)
    scene.run_once(10)
    assert scene.target.topics()["dead"] == 3


def test_a_dead_letter_topic_that_cannot_be_made_is_a_condition_and_all_else_runs(
    scene: Scene,
) -> None:
    scene.target.forbidden.add("dead")
    scene.asks_for(max=2, dead_letter_topic="dead")
    scene.run_once(10)
    (ready,) = scene.connector.status.conditions
    assert "could not create topic dead" in ready.message
    assert "Create spec.onRecordError.deadLetterTopic yourself" in ready.message
    assert scene.herder.split() == {0: [0, 2], 1: [1, 3]}


def test_a_copy_is_no_dead_letter_topic(scene: Scene) -> None:
    scene.source.create_topic("orders2", 1)
    scene.asks_for(max=2, dead_letter_topic="east.orders2")
    scene.run_once(10)
    (ready,) = scene.connector.status.conditions
    assert (
        "east.orders2 is the copy of orders2 and spec.onRecordError.deadLetterTopic"
        in ready.message
    )
    assert scene.herder.split() == {0: [0, 2], 1: [1, 3]}


def test_settings_of_a_new_topic_are_there_before_its_tasks_and_drift_is_repaired(
    scene: Scene,
) -> None:
    scene.source.create_topic("orders2", 1)
    scene.source.configs["orders2"] = {"cleanup.policy": "compact"}
    scene.target.unseen.add("east.orders2")
    assert scene.run_once(10) <= 1
    assert scene.target.config_changes == []
    scene.target.unseen.clear()
    scene.run_once(1)
    assert scene.target.config_changes == [{"east.orders2": {"cleanup.policy": "compact"}}]

    scene.target.configs["east.orders2"] |= {"cleanup.policy": "delete", "retention.ms": "1"}
    scene.run_once(59)
    assert len(scene.target.config_changes) == 1
    scene.run_once(1)
    assert scene.target.configs["east.orders2"] == {
        "cleanup.policy": "compact",
        "retention.ms": "1",
    }
    scene.run_once(60)
    assert len(scene.target.config_changes) == 2


def test_settings_that_would_change_batches_are_not_copied_where_offsets_are_preserved(
    scene: Scene,
) -> None:
    scene.context.preserved = True
    scene.source.configs["orders"] = {
        "cleanup.policy": "compact",
        "compression.type": "zstd",
        "message.timestamp.type": "LogAppendTime",
    }
    scene.run_once(60)
    assert scene.target.config_changes == [{"east.orders": {"cleanup.policy": "compact"}}]


def test_a_topic_whose_offsets_are_preserved_is_made_with_what_that_takes(scene: Scene) -> None:
    scene.context.preserved = True
    scene.source.create_topic("orders2", 1)
    scene.run_once(10)
    assert scene.target.configs["east.orders2"] == {
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
    }


def test_a_setting_that_is_taken_from_the_source_goes_from_the_target(scene: Scene) -> None:
    scene.source.configs["orders"] = {"cleanup.policy": "compact", "retention.ms": "5"}
    scene.run_once(60)
    assert scene.target.configs["east.orders"] == scene.source.configs["orders"]
    scene.source.configs["orders"] = {}
    scene.target.configs["east.orders"]["retention.ms"] = "6"
    scene.run_once(60)
    assert scene.target.configs["east.orders"] == {"retention.ms": "6"}


def test_settings_follow_the_interval_and_the_switch_of_the_spec(scene: Scene) -> None:
    scene.asks_for(max=2, topic_configs={"enabled": False})
    scene.source.configs["orders"] = {"retention.ms": "5"}
    scene.run_once(60)
    assert scene.target.config_changes == []
    scene.asks_for(max=2, topic_configs={"intervalSeconds": 2})
    assert scene.run_once(1) == 2
    assert scene.target.configs["east.orders"] == {"retention.ms": "5"}


@pytest.mark.parametrize("side", ["source", "target"])
def test_settings_that_cannot_be_copied_stop_nothing_and_are_named(scene: Scene, side: str) -> None:
    scene.source.configs["orders"] = {"retention.ms": "5"}
    scene.source.create_topic("orders2", 1)
    if side == "source":
        scene.source.hides_settings = True
    else:
        scene.target.refused_settings.add("retention.ms")
    scene.run_once(60)
    ready, *others = scene.connector.status.conditions
    refused = [ConditionType.TOPIC_CONFIGS_REFUSED] if side == "target" else []
    assert [one.type for one in others] == refused
    assert (ready.status, ready.reason) == ("True", "Running")
    assert ready.message.startswith("replicates 2 topics; settings not synchronized: could not ")
    assert sum(map(len, scene.herder.split().values())) == 5
    scene.source.hides_settings = False
    scene.target.refused_settings.clear()
    scene.run_once(60)
    (ready,) = scene.connector.status.conditions
    assert ready.message == "replicates 2 topics"


# Deleted topics.


def copied(scene: Scene, *offsets: int) -> None:
    """Store the offsets of tasks, by partition. Each partition has six records."""
    for number, offset in enumerate(offsets):
        at = TopicPartition("orders", number)
        scene.source.logs[at].entries = [MARKER] * 6
        scene.context.progress.table[key_of(at)] = Progress("i", offset, -1, "t", 0, 1, "o", 6)


def deleted(scene: Scene) -> None:
    scene.source.delete_topic("orders")
    for _ in range(4):
        scene.run_once(10)
        scene.herder.work()


def test_what_was_not_copied_of_a_deleted_topic_is_reported_until_it_is_excluded(
    scene: Scene,
) -> None:
    copied(scene, 6, 4, 6, 6)
    deleted(scene)
    status = scene.connector.status
    ready, lost = status.conditions
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, Reason.DATA_LOST)
    assert lost.type is ConditionType.DATA_LOSS_DETECTED
    assert "offsets 4 to (at least) 5 of its partition 1" in lost.message
    (loss,) = status.losses
    found = (loss.cause, loss.topic, loss.partition, loss.first_offset, loss.last_offset)
    assert found == (LossCause.SOURCE_DELETED, "orders", 1, 4, 5)
    assert loss.lower_bound
    assert len(scene.context.progress.table) == 4
    scene.context.topics = TopicFilter(["orders.*"], ["orders"], scene.context.policy, "west")
    scene.run_once(10)
    status = scene.connector.status
    assert (len(status.conditions), status.losses) == (1, ())


def test_a_deleted_topic_that_was_copied_is_no_loss_and_its_progress_goes(scene: Scene) -> None:
    copied(scene, 6, 6, 6, 6)
    deleted(scene)
    (ready,) = scene.connector.status.conditions
    assert ready.status is ConditionStatus.TRUE
    assert not scene.context.progress.table


def test_the_loss_of_a_deleted_topic_is_reported_by_the_next_connector_at_once(
    scene: Scene,
) -> None:
    copied(scene, 6, 4, 6, 6)
    deleted(scene)
    before = scene.connector.status
    task = scene.connector.ownership.task.model_copy(update={"status": before})
    herder: Any = scene.herder
    ownership = Ownership(task, DriverIdentity("e", "1"), herder)
    scene.connector = SourceConnector(ownership, scene.context, herder, lambda: None)
    (lost,) = scene.connector.status.conditions
    assert lost.type is ConditionType.DATA_LOSS_DETECTED
    assert scene.connector.status.losses == before.losses
