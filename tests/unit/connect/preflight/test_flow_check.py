"""Findings of a flow's check and the flow's condition for them. Clusters are in memory."""

from collections.abc import Iterator

import pytest
from support.fake_kafka import FakeRecord
from support.preserved_scenes import PRESERVED
from support.source_tasks import COPY, TOPIC, Scene

from headrace.api import TopicPartition
from headrace.api.flow import Location
from headrace.connect.preflight.permissions import CheckResult, Finding
from headrace.connect.preflight.preflight import Requirements, check_flow
from headrace.errors import Fatal
from headrace.kafka import Operation

PROGRESS = "mm2-headrace-progress.east.internal"


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    for cluster, topic in ((scene.source, TOPIC), (scene.target, COPY)):
        cluster.configs[topic] = {"max.message.bytes": "1000", "min.insync.replicas": "1"}
    scene.change_spec(checkpoints={"enabled": False})
    yield scene
    scene.close()


def wrong(scene: Scene) -> list[Finding]:
    return [one for one in check_flow(scene.context) if one.outcome is not CheckResult.OK]


def only(scene: Scene) -> Finding:
    (found,) = wrong(scene)
    return found


def test_nothing_is_wrong_where_all_is_allowed(scene: Scene) -> None:
    assert wrong(scene) == []
    lines = {(one.side, one.subject, one.what) for one in check_flow(scene.context)}
    assert (Location.SOURCE, f"topics heartbeats, {TOPIC}", "Read") in lines
    assert (Location.TARGET, f"topic {PROGRESS}", "Write") in lines


def test_a_right_that_is_missing_is_named_with_the_acl_and_the_command(scene: Scene) -> None:
    scene.target.denied = {(COPY, Operation.WRITE)}
    found = only(scene)
    assert (found.outcome, found.subject, found.what) == (
        CheckResult.MISSING,
        f"topic {COPY}",
        "Write",
    )
    assert found.command == (
        "kafka-acls.sh --bootstrap-server 127.0.0.1:2 --add --allow-principal User:ANONYMOUS "
        "--operation Write --topic east. --resource-pattern-type prefixed"
    )


def test_a_right_without_which_the_flow_copies_all_the_same_is_a_warning(scene: Scene) -> None:
    scene.target.denied = {(COPY, Operation.ALTER)}
    assert only(scene).outcome is CheckResult.WARNING
    scene.target.denied = {(COPY, Operation.READ)}
    assert only(scene).outcome is CheckResult.WARNING
    assert only(scene).message.endswith("needed to repeat nothing after a crash")


def test_what_exists_need_not_be_made(scene: Scene) -> None:
    scene.target.denied = {(COPY, Operation.CREATE)}
    assert wrong(scene) == []
    scene.target.delete_topic(COPY)
    assert only(scene).what == "Create"


def test_rights_of_what_the_spec_turns_off_are_not_asked_for(scene: Scene) -> None:
    scene.source.denied = {("heartbeats", Operation.WRITE), (TOPIC, Operation.DESCRIBE_CONFIGS)}
    assert {one.outcome for one in wrong(scene)} == {CheckResult.MISSING}
    scene.change_spec(heartbeats={"onSource": False}, topicConfigs={"enabled": False})
    assert only(scene).outcome is CheckResult.WARNING


def test_groups_that_may_not_be_described_or_committed_for(scene: Scene) -> None:
    scene.source.consumer_commits("readers", TopicPartition(TOPIC, 0), 1)
    scene.source.denied = {("readers", Operation.DESCRIBE)}
    scene.target.denied = {("readers", Operation.READ)}
    scene.change_spec(checkpoints={"applyToGroups": True})
    found = wrong(scene)
    assert [(one.subject, one.what) for one in found] == [
        ("group readers", "Describe"),
        ("group readers", "Read"),
    ]
    assert found[1].command.endswith("--operation Read --group readers")


def test_share_groups_count_where_they_are_set(scene: Scene) -> None:
    scene.source.kinds["packing"] = "share"
    scene.target.denied = {("packing", Operation.READ)}
    assert wrong(scene) == []
    scene.change_spec(checkpoints={"applyToGroups": True})
    assert (only(scene).subject, only(scene).what) == ("group packing", "Read")


def test_where_no_group_can_be_seen_the_right_on_all_of_them_is_asked_for(scene: Scene) -> None:
    scene.source.denied = {("*", Operation.DESCRIBE)}
    scene.change_spec(checkpoints={"enabled": True})
    assert only(scene).command.endswith("--operation Describe --group '*'")
    scene.change_spec(groups={"include": ["readers-.*"]})
    assert (only(scene).what, only(scene).outcome) == ("name", CheckResult.WARNING)


def test_a_cluster_that_does_not_answer_is_the_only_finding_of_it(scene: Scene) -> None:
    scene.source.away = True
    found = only(scene)
    assert (found.side, found.what) == (Location.SOURCE, "connection")


def test_brokers_that_are_too_old_are_a_missing_requirement(scene: Scene) -> None:
    scene.source.too_old = True
    assert (only(scene).what, only(scene).outcome) == ("version", CheckResult.MISSING)


def test_a_setting_that_the_flow_corrects_itself_is_not_wrong(scene: Scene) -> None:
    scene.target.configs[COPY] |= {"max.message.bytes": "500"}
    assert wrong(scene) == []
    scene.change_spec(topicConfigs={"enabled": False})
    found = only(scene)
    assert found.message == "500 is less than the source's 1000: larger records are refused"
    assert found.command.endswith("--add-config max.message.bytes=1000")


def test_a_setting_that_the_target_refuses_is_a_warning(scene: Scene) -> None:
    scene.target.configs[COPY] |= {"max.message.bytes": "500", "segment.ms": "1"}
    scene.source.configs[TOPIC] |= {"segment.ms": "2"}
    before = dict(scene.target.configs[COPY])
    scene.target.refused_settings.add("segment.ms")
    found = only(scene)
    assert (found.what, found.outcome) == ("segment.ms", CheckResult.WARNING)
    assert found.message == (
        "it does not follow the source: could not set segment.ms of east.orders"
    )
    assert scene.target.configs[COPY] == before


def test_a_target_that_takes_no_record_or_no_topic(scene: Scene) -> None:
    scene.target.configs[COPY]["min.insync.replicas"] = "2"
    assert only(scene).what == "min.insync.replicas"
    scene.target.delete_topic(COPY)
    scene.target.unmakeable = Fatal("no more replicas than there are brokers")
    assert {one.message for one in wrong(scene)} == {"no more replicas than there are brokers"}


def test_internal_topics_that_would_forget(scene: Scene) -> None:
    scene.target.create_topic(PROGRESS, 3, config={"cleanup.policy": "delete"})
    assert [(one.what, one.outcome) for one in wrong(scene)] == [
        ("partitions", CheckResult.MISSING),
        ("cleanup.policy", CheckResult.MISSING),
    ]


def test_records_without_progress_are_somebody_elses(scene: Scene) -> None:
    scene.target.write(TopicPartition(COPY, 1), FakeRecord(b"k", b"v", 1))
    assert (only(scene).subject, only(scene).what) == (f"topic {COPY}", "data")


def test_topics_that_are_never_copied(scene: Scene) -> None:
    scene.source.create_topic("mm2-orders.internal", 1)
    scene.change_spec(topics={"include": [".*orders.*"], "exclude": []})
    assert only(scene).subject == "topic mm2-orders.internal"
    scene.change_spec(topics={"include": ["orders", r".*orders\..*"], "exclude": []})
    assert only(scene).subject == "topic mm2-orders.internal", "the pattern does match one"
    scene.change_spec(topics={"include": ["orders", "mm2-unseen.internal"], "exclude": []})
    assert only(scene).subject == "topic mm2-unseen.internal"


def test_progress_under_the_earlier_name_has_to_be_readable(scene: Scene) -> None:
    earlier = "headrace-progress.east.internal"
    scene.target.create_topic(earlier, 8)
    assert wrong(scene) == []
    scene.target.denied = {(earlier, Operation.READ)}
    assert (only(scene).subject, only(scene).what) == (f"topic {earlier}", "Read")


def test_the_condition_goes_when_what_was_missing_is_granted(scene: Scene) -> None:
    requirements = Requirements(scene.context)
    scene.target.denied = {(COPY, Operation.WRITE)}
    assert requirements.poll()
    (condition,) = requirements.conditions
    assert f"target topic {COPY}: Write: User:ANONYMOUS may not; needed" in condition.message
    scene.target.denied = set()
    assert not requirements.poll(), "at most once a minute"
    scene.clock.advance(60)
    assert requirements.poll()
    assert requirements.conditions == ()
    scene.clock.advance(3_600)
    assert not requirements.poll(), "nothing is missing"


@pytest.fixture
def preserved() -> Iterator[Scene]:
    scene = Scene(flow=PRESERVED)
    for cluster, topic in ((scene.source, TOPIC), (scene.target, COPY)):
        cluster.configs[topic] = {"max.message.bytes": "1000", "min.insync.replicas": "1"}
    yield scene
    scene.close()


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        (COPY, Operation.DELETE),
        (COPY, Operation.READ),
        (COPY, Operation.DESCRIBE_CONFIGS),
        ("headrace-check", Operation.WRITE),
    ],
)
def test_what_equal_offsets_take_is_missing_and_not_only_missed(
    preserved: Scene, name: str, operation: Operation
) -> None:
    assert wrong(preserved) == []
    preserved.target.denied = {(name, operation)}
    assert {one.outcome for one in wrong(preserved)} == {CheckResult.MISSING}


def test_preserved_offsets_need_permission_to_read_the_copies(preserved: Scene) -> None:
    preserved.target.denied = {(COPY, Operation.READ)}
    assert only(preserved).message.endswith("needed to give copies their sources' offsets")


def test_a_setting_against_equal_offsets_is_missing_with_the_command(preserved: Scene) -> None:
    preserved.target.configs[COPY] |= {"compression.type": "zstd"}
    found = only(preserved)
    assert (found.outcome, found.what) == (CheckResult.MISSING, "compression.type")
    assert found.command.endswith("--add-config compression.type=producer")
