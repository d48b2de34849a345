"""Estimate of the disk that copies need."""

from collections.abc import Iterator

import pytest
from support.source_tasks import COPY, TOPIC, Scene

from headrace.api import TopicPartition
from headrace.connect.preflight.disk import disk_need, judge_disk
from headrace.connect.preflight.permissions import CheckResult, Finding
from headrace.connect.preflight.preflight import check_flow
from headrace.kafka import BrokerDisk, Operation

GB = 10**9
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    for cluster, topic in ((scene.source, TOPIC), (scene.target, COPY)):
        cluster.configs[topic] = {"min.insync.replicas": "1"}
    scene.change_spec(checkpoints={"enabled": False})
    scene.source.disks = {1: BrokerDisk(1, {TopicPartition(TOPIC, 0): 3 * GB})}
    yield scene
    scene.close()


def of_disk(scene: Scene) -> Finding | None:
    return next((one for one in check_flow(scene.context) if one.what == "free disk"), None)


def test_new_copies_are_spread_with_their_replicas_over_all_brokers() -> None:
    disks = {broker: BrokerDisk(None, {}) for broker in (1, 2, 3)}
    need = disk_need({P0: 3 * GB, P1: 6 * GB}, {}, disks, replicas=2)
    assert need.to_copy_bytes == 9 * GB
    assert need.by_broker_bytes == {1: 6 * GB, 2: 6 * GB, 3: 6 * GB}


def test_copies_that_exist_grow_on_their_brokers_up_to_their_retention() -> None:
    disks = {
        1: BrokerDisk(None, {P0: 1 * GB, P1: 0}),
        2: BrokerDisk(None, {P0: 2 * GB}),
        3: BrokerDisk(None, {}),
    }
    need = disk_need({P0: 5 * GB, P1: 1 * GB}, {"orders": 4 * GB}, disks, replicas=1)
    assert need.by_broker_bytes == {1: 4 * GB, 2: 2 * GB, 3: 0}
    assert need.to_copy_bytes == 3 * GB


def test_more_replicas_than_brokers_are_counted_once_for_each() -> None:
    need = disk_need({P2: GB}, {}, {1: BrokerDisk(None, {})}, replicas=3)
    assert need.by_broker_bytes == {1: GB}


def test_a_broker_without_room_is_named_with_what_it_needs() -> None:
    disks = {1: BrokerDisk(5 * GB, {}), 2: BrokerDisk(500_000_000, {})}
    found = judge_disk(disk_need({P0: 2 * GB}, {}, disks, 1), disks, 1)
    assert (found.outcome, found.subject) == (CheckResult.WARNING, "cluster")
    assert found.message == (
        "about 2.0 GB to copy; broker 2 needs 1.0 GB and has 500.0 MB free: enlarge the disks, "
        "copy fewer topics, or limit retention.bytes of the copies"
    )


def test_brokers_that_do_not_report_their_free_disk_are_unknown() -> None:
    disks = {1: BrokerDisk(None, {}), 2: BrokerDisk(5 * GB, {})}
    found = judge_disk(disk_need({P0: 2 * GB}, {}, disks, 1), disks, None)
    assert found.outcome is CheckResult.OK
    assert found.message == (
        "about 2.0 GB to copy, counted with one replica, because spec.target.replicationFactor is "
        "not set; brokers do not report their free disk before Kafka 3.3: 1"
    )


def test_retention_of_a_copy_limits_what_it_needs(scene: Scene) -> None:
    scene.target.disks = {1: BrokerDisk(GB, {TopicPartition(COPY, 0): 0})}
    found = of_disk(scene)
    assert found is not None
    assert (found.outcome, "broker 1 needs 3.0 GB" in found.message) == (CheckResult.WARNING, True)
    scene.target.configs[COPY] |= {"retention.bytes": "1000", "segment.bytes": "1000"}
    found = of_disk(scene)
    assert found is not None
    assert found.outcome is CheckResult.OK


def test_without_describe_on_a_cluster_there_is_no_estimate_but_a_warning(scene: Scene) -> None:
    scene.source.denied = {("kafka-cluster", Operation.DESCRIBE)}
    assert of_disk(scene) is None
    (found,) = [one for one in check_flow(scene.context) if one.outcome is not CheckResult.OK]
    assert (found.outcome, found.what) == (CheckResult.WARNING, "Describe")
    assert found.message.endswith("needed to check that copies fit on the target's disks")
    assert found.command.endswith("--operation Describe --cluster")


def test_a_flow_that_begins_at_the_end_needs_no_disk_for_existing_records(scene: Scene) -> None:
    scene.change_spec(startFrom={"mode": "Latest"})
    scene.source.denied = {("kafka-cluster", Operation.DESCRIBE)}
    assert {one.outcome for one in check_flow(scene.context)} == {CheckResult.OK}
