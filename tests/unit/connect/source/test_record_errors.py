"""Policies of a source task for records that the target will never accept."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_kafka import MARKER, FakeRecord
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import ConditionType, TaskPhase, find_condition
from headrace.api.partitions import TopicPartition
from headrace.connect import Role
from headrace.kafka import KafkaError

DEAD = "dead"
POISON = b"poison"
TOO_LARGE, TIMESTAMP = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_TIMESTAMP


def refuse_poison(code: int = TOO_LARGE, *topics: str) -> Callable[[TopicPartition, Any], int]:
    """Let brokers reject records of these topics whose value begins with the poison."""

    def refuses(at: TopicPartition, record: FakeRecord) -> int:
        poison = (record.value or b"").startswith(POISON)
        return code if poison and at.topic in (topics or (COPY,)) else 0

    return refuses


@pytest.fixture
def scenes() -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(policy: str, *partitions: TopicPartition) -> Scene:
        scene = Scene(*partitions)
        made.append(scene)
        more = {"deadLetterTopic": DEAD} if policy == "DeadLetter" else {}
        scene.change_spec(onRecordError={"action": policy, **more})
        scene.target.refuses = refuse_poison()
        scene.target.create_topic(DEAD, 1)
        return scene

    yield make
    for scene in made:
        scene.close()


def copy_all(scene: Scene) -> None:
    for _ in range(12):
        scene.recover()
        scene.commit()


def dead_letters(scene: Scene) -> list[FakeRecord]:
    return [record for record in scene.target.logs[TopicPartition(DEAD, 0)].entries if record]


def left_out(scene: Scene) -> str:
    found = find_condition(scene.task.status.conditions, ConditionType.RECORDS_LEFT_OUT)
    return found.message if found else ""


def test_the_leader_epoch_after_a_record_that_is_left_out_is_unknown(
    scenes: Callable[..., Scene],
) -> None:
    """With the epoch before the record, the log could look truncated there."""
    scene = scenes("Skip", P0)
    scene.source.append(TOPIC, b"good", POISON)
    scene.start()
    copy_all(scene)
    stored = scene.stored(P0)
    assert (stored.source_offset, stored.leader_epoch) == (2, -1)


@pytest.mark.parametrize("named", [False, True])
def test_a_refused_record_of_a_batch_is_skipped_and_it_alone(
    scenes: Callable[..., Scene], named: bool
) -> None:
    scene = scenes("Skip")
    scene.target.names_refused = named
    scene.target.refuses = refuse_poison(TIMESTAMP)
    scene.source.append(TOPIC, b"a", b"b", POISON, b"c", POISON + b"2", b"d")
    scene.source.append(TOPIC, b"other", partition=1)
    scene.start()
    copy_all(scene)
    assert scene.copies() == [b"a", b"b", b"c", b"d"]
    assert scene.copies(1) == [b"other"]
    assert (scene.position(P0), scene.position(P1)) == (6, 1)
    assert (scene.phase, scene.error) == (TaskPhase.RUNNING, "")
    status = scene.task.status
    assert (status.skipped_records, status.dead_lettered_records) == (2, None)
    assert (scene.task.copied.skipped, scene.task.copied.dead_lettered) == (2, 0)
    assert left_out(scene).startswith("records that the target refused: 2 skipped, 0 written")
    assert "orders-0 offset 4 of east" in left_out(scene)
    assert "INVALID_TIMESTAMP" in left_out(scene)
    assert dead_letters(scene) == []


def test_a_refused_record_is_written_to_the_dead_letter_topic_as_it_is(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes("DeadLetter")
    headers = [("trace", b"1"), ("trace", None), ("__connect.errors.stage", b"earlier")]
    scene.source.append(TOPIC, b"a")
    scene.source.write(P0, FakeRecord(b"k", POISON, 77, headers))
    scene.source.append(TOPIC, b"b")
    scene.start()
    copy_all(scene)
    assert (scene.copies(), scene.position()) == ([b"a", b"b"], 3)
    (letter,) = dead_letters(scene)
    assert (letter.key, letter.value) == (b"k", POISON)
    assert letter.headers[:3] == headers
    said = "could not write orders-0 offset 1 of east to east.orders on west: "
    added = {name: value.decode() for name, value in letter.headers[3:]}
    message = added.pop("__connect.errors.exception.message")
    assert message.startswith(said)
    exception = "org.apache.kafka.common.errors.RecordTooLargeException"
    assert added == {
        "__connect.errors.topic": "orders",
        "__connect.errors.partition": "0",
        "__connect.errors.offset": "1",
        "__connect.errors.connector.name": "f",
        "__connect.errors.task.id": "0",
        "__connect.errors.class.name": "headrace.datapath.mover.BatchLane",
        "__connect.errors.exception.class.name": exception,
        "__connect.errors.exception.stacktrace": f"{exception}: {message}\n",
        "__headrace.errors.timestamp": "77",
    }
    assert scene.task.status.dead_lettered_records == 1
    assert "1 written to a dead-letter topic; the last is in dead: " in left_out(scene)


def test_a_refused_record_fails_the_task_without_another_policy(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes("Fail", P0)
    scene.source.append(TOPIC, b"a", POISON, b"b")
    scene.start()
    copy_all(scene)
    assert scene.phase is TaskPhase.FAILED
    assert "raise max.message.bytes" in scene.error
    assert scene.copies() == []
    assert left_out(scene) == ""


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION]
)
def test_what_no_record_is_to_blame_for_fails_the_task_with_any_policy(
    scenes: Callable[..., Scene], code: int
) -> None:
    scene = scenes("Skip", P0)
    scene.target.refuses = refuse_poison(code)
    scene.source.append(TOPIC, POISON)
    scene.start()
    copy_all(scene)
    assert (scene.phase, scene.task.copied.skipped) == (TaskPhase.FAILED, 0)


def test_a_record_that_the_client_refuses_is_skipped(scenes: Callable[..., Scene]) -> None:
    scene = scenes("Skip")
    scene.target.largest_bytes = 1_000
    scene.source.write(P0, MARKER)
    scene.source.append(TOPIC, b"x" * 1_001, b"a", b"y" * 1_001, b"b")
    scene.start()
    copy_all(scene)
    assert (scene.copies(), scene.position()) == ([b"a", b"b"], 5)
    assert scene.task.copied.skipped == 2


def test_a_record_that_the_dead_letter_topic_refuses_too_fails_the_task(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes("DeadLetter", P0)
    scene.target.refuses = refuse_poison(TOO_LARGE, COPY, DEAD)
    scene.source.append(TOPIC, b"a", POISON, b"b")
    scene.start()
    copy_all(scene)
    assert scene.phase is TaskPhase.FAILED
    assert "could not write orders-0 offset 1 of east to dead-letter topic dead" in scene.error
    assert "leave the record out with spec.onRecordError.action: Skip" in scene.error
    assert (scene.copies(), scene.position()) == ([b"a"], 1)


def test_a_dead_letter_topic_that_does_not_answer_delays_its_partition_only(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes("DeadLetter")
    scene.hold_back(DEAD)
    scene.source.append(TOPIC, POISON, b"a")
    scene.start()
    copy_all(scene)
    scene.source.append(TOPIC, b"other", partition=1)
    copy_all(scene)
    assert (scene.copies(0), scene.copies(1)) == ([], [b"other"])
    assert "dead-letter topic dead on west: no answer within 5 s" in scene.error
    assert (scene.phase, scene.position()) == (TaskPhase.RUNNING, 0)
    scene.let_through()
    copy_all(scene)
    assert (scene.copies(), scene.position(), scene.error) == ([b"a"], 2, "")
    assert [letter.value for letter in dead_letters(scene)] == [POISON]
    assert scene.task.copied.dead_lettered == 1


def test_a_crash_between_dead_letter_and_progress_repeats_the_dead_letter(
    scenes: Callable[..., Scene],
) -> None:
    scene = scenes("DeadLetter")
    scene.source.append(TOPIC, POISON, b"a")
    scene.start()
    progress = scene.context.progress.topic
    scene.target.refuses = lambda at, record: (
        refuse_poison()(at, record)
        or (KafkaError.NOT_ENOUGH_REPLICAS if at.topic == progress and _is_at(record, 1) else 0)
    )
    copy_all(scene)
    assert len(dead_letters(scene)) >= 1
    assert (scene.position(), scene.task.copied.dead_lettered) == (0, 0)
    written = len(dead_letters(scene))
    scene.target.refuses = refuse_poison()
    following = Scene(kafka=scene.kafka)
    following.change_spec(onRecordError={"action": "DeadLetter", "deadLetterTopic": DEAD})
    following.start()
    copy_all(following)
    assert (following.copies(), following.position()) == ([b"a"], 2)
    assert len(dead_letters(scene)) == written + 1
    assert following.task.copied.dead_lettered == 1
    following.close()


def _is_at(record: FakeRecord, offset: int) -> bool:
    return bool(record.value) and json.loads(record.value or b"")["source_offset"] == offset


def test_what_was_left_out_is_reported_by_the_next_instance(scenes: Callable[..., Scene]) -> None:
    scene = scenes("Skip")
    scene.source.append(TOPIC, POISON)
    scene.start()
    copy_all(scene)
    scene.ownership.report(scene.task.status)
    following = scene.make_task(Role.ACTIVE, scene.task.partitions)
    following.activate()
    assert following.status.skipped_records == 1
    assert following.status.conditions[0].type is ConditionType.RECORDS_LEFT_OUT
    scene.task = following
    scene.source.append(TOPIC, POISON)
    copy_all(scene)
    assert following.status.skipped_records == 2
    assert "2 skipped" in left_out(scene)
    assert following.copied.skipped == 1


def test_a_refused_record_among_many_is_found_in_few_steps(scenes: Callable[..., Scene]) -> None:
    scene = scenes("Skip")
    values = [b"%d" % number for number in range(5_000)]
    values[3_333] = POISON
    scene.source.append(TOPIC, *values)
    scene.start()
    rounds = 0
    while scene.position() != len(values) and rounds < 100:
        scene.recover()
        scene.commit()
        rounds += 1
    assert scene.copies() == values[:3_333] + values[3_334:]
    assert scene.task.copied.skipped == 1
    assert rounds < 50, "a batch of thousands is not sent record by record"
