"""A source task whose copies have their sources' offsets.

The tests check what it stores, rejects, copies again and reports. Mover and fence are the product's
own. Clusters are in memory.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.fake_kafka import FakeLog
from support.preserved_scenes import PreservedScenes, preserved_scenes
from support.source_tasks import COPY, P0, P1, TOPIC, Scene
from support.wire_kafka import LOST

from headrace.api import (
    HEARTBEATS,
    RESET_ANNOTATION,
    ConditionType,
    LossCause,
    TaskPhase,
    find_condition,
)
from headrace.api.partitions import TopicPartition
from headrace.connect.takeover.preserving import begun_again
from headrace.connect.topics.losses import PartitionState
from headrace.datapath.preserved import holes, takeover
from headrace.replication import Loss, OwnerProducer

THERE = TopicPartition(COPY, 0)


@pytest.fixture
def scenes() -> Iterator[PreservedScenes]:
    with preserved_scenes(P0) as scenes:
        yield scenes


@pytest.fixture
def filled_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill holes in transactions of at most ten offsets."""
    monkeypatch.setattr(holes, "BATCH_RECORDS", 5)
    monkeypatch.setattr(takeover, "TRANSACTION_OFFSETS", 11)
    monkeypatch.setattr(takeover, "PAD_S", -1.0)


def copied(scenes: PreservedScenes, cells: str) -> None:
    """Fill both sides with these records, and store the progress."""
    scenes.fill(cells)
    if scenes.scene.phase is TaskPhase.CREATED:
        scenes.scene.task.activate()
    scenes.until(lambda: scenes.is_copied(P0))


def stops(scenes: PreservedScenes) -> str:
    """Return the condition's message once the partition is no longer copied."""

    def why() -> str:
        scenes.scene.observe()
        status = scenes.scene.task.status
        ready = find_condition(status.conditions, ConditionType.READY)
        stopped = scenes.scene.phase is TaskPhase.FAILED or (
            ready is not None and f"{P0} is not copied" in ready.message
        )
        return f"{scenes.scene.error} {ready.message if ready else ''}" if stopped else ""

    for _ in range(400):
        if found := why():
            return found
        scenes.turn(0.35)
    raise AssertionError(f"not stopped: {scenes.scene.error}")


def test_a_partition_that_somebody_else_writes_to_stops_and_no_other() -> None:
    with preserved_scenes() as scenes:
        for at in (P0, P1):
            scenes.fill("ab-", at)
        scenes.scene.task.activate()
        scenes.until(lambda: all(map(scenes.is_copied, (P0, P1))))
        scenes.scene.target.append(COPY, b"x")
        for at in (P0, P1):
            scenes.fill("cd-e", at)
        scenes.until(lambda: scenes.is_copied(P1))
        why = stops(scenes)
        assert "orders-0 on west" in why
        assert "from offset 3 on" in why or "from 3 on" in why
        scenes.fill("f", P1)
        scenes.until(lambda: scenes.is_copied(P1))
        assert scenes.cells(P1) == "ab-cd-ef"
        assert scenes.scene.stored(P0).source_offset == 3, "what is right so far"


def test_heartbeats_are_not_copied(scenes: PreservedScenes) -> None:
    topics = scenes.scene.context.topics
    assert [topics.matches(one) for one in (TOPIC, HEARTBEATS)] == [True, False]


def test_progress_counts_holes_and_names_who_writes(scenes: PreservedScenes) -> None:
    copied(scenes, "ab--c-")
    assert scenes.cells() == "ab--c-"
    stored = scenes.scene.stored(P0)
    assert (stored.source_offset, stored.target_offset) == (6, 6)
    assert stored.writer is not None
    assert stored.data_writer is not None
    assert stored.writer.transactional_id == "headrace-f-source-task-0-me-me-1"
    assert stored.data_writer.transactional_id == "headrace-f-source-task-0-data"
    assert (stored.version, stored.unfenced, stored.fencing) == (3, (), ())
    scenes.begin_again("other")
    copied(scenes, "-d-")
    assert scenes.cells() == "ab--c--d-"
    assert scenes.scene.stored(P0).data_writer == stored.data_writer, "for ever"


@pytest.mark.usefixtures("filled_bit_by_bit")
def test_how_far_a_partition_is_filled_is_shown_and_kept(scenes: PreservedScenes) -> None:
    scenes.log(P0).start = 60
    scenes.fill("ab")
    scenes.scene.task.activate()
    shown = set()

    def is_copied() -> bool:
        scenes.scene.observe()
        shown.add(scenes.scene.error)
        return scenes.is_copied(P0)

    scenes.until(is_copied)
    assert any("is filled up to offset 60, where its source begins: 33 so far" in s for s in shown)
    assert (scenes.copy(P0).start, scenes.cells()) == (60, "ab")


@pytest.mark.usefixtures("filled_bit_by_bit")
def test_retention_that_deletes_more_while_it_is_filled_is_no_loss(scenes: PreservedScenes) -> None:
    scenes.log(P0).start = 30
    scenes.fill("abcdef")
    scenes.scene.task.activate()
    scenes.until(lambda: scenes.copy(P0).end > 0)
    scenes.log(P0).delete_before(33)
    scenes.until(lambda: scenes.is_copied(P0))
    assert (scenes.copy(P0).start, scenes.cells(), scenes.scene.lost_data) == (33, "def", "")


def test_what_the_source_deleted_before_it_was_copied_stops_the_partition(
    scenes: PreservedScenes,
) -> None:
    copied(scenes, "abc")
    scenes.kill()
    scenes.fill("defg")
    scenes.log(P0).delete_before(5)
    scenes.begin_again("other")
    why = stops(scenes)
    assert "orders-0 on east begins at offset 5, the next to copy was 3" in why
    assert "have east.orders on west copied again, by `headrace flow rebuild`" in why
    assert "onDataLoss" not in why
    assert scenes.cells() == "abc"
    recreate(scenes)
    scenes.until(lambda: scenes.is_copied(P0))
    assert (scenes.copy(P0).start, scenes.cells()) == (5, "fg")


def recreate(scenes: PreservedScenes) -> None:
    """Recreate the target's topic, as a user and the connector do."""
    target = scenes.scene.target
    with target.changed:
        target.ids[COPY] = "another"
        for at in [one for one in target.logs if one.topic == COPY]:
            target.logs[at] = FakeLog()
        scenes.target.producer_states.clear()
    scenes.scene.clock.advance(100)


def test_a_topic_that_was_deleted_on_the_target_is_copied_again(scenes: PreservedScenes) -> None:
    copied(scenes, "ab-c")
    recreate(scenes)
    scenes.restart()
    scenes.until(lambda: scenes.is_copied(P0) and scenes.cells() == "ab-c")
    assert "copied again from there on (spec.offsets.mode: Preserved)" in scenes.scene.lost_data


def test_what_the_target_lost_is_copied_again(scenes: PreservedScenes) -> None:
    copied(scenes, "ab-cd")
    scenes.kill()
    with scenes.scene.target.changed:
        scenes.copy(P0).truncate(2)
        scenes.target.producer_states.clear()
    scenes.begin_again("other")
    scenes.until(lambda: scenes.is_copied(P0) and scenes.cells() == "ab-cd")
    assert "offsets 2 to 4 are missing from the target" in scenes.scene.lost_data


def test_a_leader_that_has_nothing_of_the_copy_gets_no_batch_at_another_offset(
    scenes: PreservedScenes,
) -> None:
    """The leader was elected while the lane copied, and has no sequence."""
    copied(scenes, "ab-cd")
    with scenes.scene.target.changed:
        scenes.copy(P0).truncate(0)
        scenes.target.producer_states.clear()
    answers = iter([LOST])  # from the leader before
    scenes.target.fault = lambda *_: next(answers, None)
    scenes.fill("e")
    scenes.until(lambda: scenes.is_copied(P0) and scenes.cells() == "ab-cde")
    assert "offset 0, but all offsets below 5 were acknowledged" in scenes.scene.lost_data
    assert next(answers, None) is None


def test_a_loss_that_a_lane_has_noticed_is_copied_again_too(scenes: PreservedScenes) -> None:
    copied(scenes, "ab-cd")
    key, stored = scenes.scene.context.progress_key(P0), scenes.scene.stored(P0)
    scenes.kill()
    lost = Loss(LossCause.TARGET_TRUNCATED, 3, 4, 0)
    scenes.scene.context.progress.write({key: replace(stored, loss=lost)})
    with scenes.scene.target.changed:
        scenes.copy(P0).truncate(3)
        scenes.target.producer_states.clear()
    for cell in "xy":  # records that the source does not have there
        scenes.scene.target.append(COPY, cell.encode())
    scenes.begin_again("other")
    assert "from offset 3 on" in stops(scenes)


def test_a_copy_that_differs_is_refused_with_the_offset(scenes: PreservedScenes) -> None:
    scenes.fill("abc")
    scenes.scene.target.append(COPY, b"a", b"x")
    scenes.scene.task.activate()
    why = stops(scenes)
    assert "is not as orders-0 on east" in why
    assert "from offset 1 on: the value of the record differs" in why
    assert "another client writes there" in why
    assert scenes.cells() == "ax"


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("compression.type", "zstd", "compression.type: zstd, and must be producer"),
        ("message.timestamp.type", "LogAppendTime", "records get other timestamps"),
        ("max.message.bytes", "1000", "max.message.bytes: 1000 is less than the source's 2000"),
        ("cleanup.policy", "compact", "only where it has delete"),
    ],
)
def test_a_target_topic_that_does_not_allow_it_is_refused(
    scenes: PreservedScenes, setting: str, value: str, why: str
) -> None:
    scenes.scene.source.configs[TOPIC] = {"max.message.bytes": "2000"}
    scenes.scene.target.configs[COPY] = {setting: value}
    scenes.log(P0).start = 3
    scenes.fill("ab")
    scenes.scene.task.activate()
    said = stops(scenes)
    assert "east.orders on west cannot have the offsets of orders on east" in said
    assert why in said
    assert scenes.copy(P0).end == 0, "nothing is written"


def test_a_copy_with_translated_offsets_is_not_gone_on_with(scenes: PreservedScenes) -> None:
    copied(scenes, "ab")
    key = scenes.scene.context.progress_key(P0)
    translated = replace(scenes.scene.stored(P0), data_writer=None, version=1)
    scenes.kill()
    scenes.scene.context.progress.write({key: translated})
    scenes.begin_again("other")
    why = stops(scenes)
    assert "by a flow with offsets.mode: Translated, and this one has Preserved" in why


def test_a_copy_with_preserved_offsets_is_not_gone_on_with_otherwise() -> None:
    scene = Scene(P0)
    scene.start()
    stored = scene.stored(P0).preserving(OwnerProducer("headrace-other-data", 7, 0))
    scene.context.progress.write({scene.context.progress_key(P0): replace(stored, epoch=9)})
    scene.context.progress.read_to_end()
    another = Scene(P0, kafka=scene.kafka, driver="other")
    another.task.activate()
    for _ in range(5):
        another.run_once()
        another.observe()
    assert "by a flow with offsets.mode: Preserved, and this one has Translated" in another.error
    for one in (scene, another):
        one.close()


def test_deletions_that_may_be_missing_are_named_until_the_copy_is_made_again(
    scenes: PreservedScenes,
) -> None:
    """A reset compares the copy, and repairs nothing."""
    for configs in (scenes.scene.source.configs[TOPIC], scenes.scene.target.configs[COPY]):
        configs |= {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
    copied(scenes, "ab")
    scenes.kill()
    scenes.scene.clock.end_s = 1_000_000
    scenes.scene.clock.advance(2 * 86_400)
    scenes.fill("c")
    scenes.begin_again("later")
    scenes.until(lambda: "`headrace flow rebuild FLOW orders`, because" in at_risk(scenes))
    reset(scenes, "2026-01-31T18:00:00Z")
    scenes.until(lambda: scenes.is_copied(P0) and "orders-0 (not copied" in at_risk(scenes))
    assert scenes.scene.stored(P0).tombstones_since_ms
    found = PartitionState("s", "created again", 0, 3, 0)
    rebuilt = begun_again(scenes.scene.stored(P0), found, now_ms=1)
    assert not rebuilt.tombstones_since_ms


def at_risk(scenes: PreservedScenes) -> str:
    """Return the message of the condition."""
    scenes.scene.observe()
    found = find_condition(scenes.scene.task.status.conditions, ConditionType.TOMBSTONES_AT_RISK)
    return found.message if found else ""


def reset(scenes: PreservedScenes, moment: str) -> None:
    """Request a reset, and wait until it is complete."""
    before = scenes.scene.stored(P0).reset_ms
    flow = scenes.scene.context.flow
    annotations = {RESET_ANNOTATION: f"orders/0@{moment}"}
    metadata = flow.metadata.model_copy(update={"annotations": annotations})
    scenes.scene.context.change(flow.model_copy(update={"metadata": metadata}))
    scenes.until(lambda: scenes.scene.stored(P0).reset_ms != before)
