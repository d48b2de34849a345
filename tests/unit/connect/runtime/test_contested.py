"""Partitions that two flows copy, or two runs of one: one of both stops, and reports it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.lags import lag_of
from support.source_tasks import P0, P1, Scene

from headrace.api import Condition, ConditionType, TaskPhase, TopicPartitions, find_condition
from headrace.api.partitions import TopicPartition

BEATS = TopicPartition("heartbeats", 0)
ALL = {P0, P1}


class Rivals:
    """Two runs of one flow, each with its own herder. A Worker restarts closed units."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.first = Scene(*partitions, driver="here")
        if BEATS in partitions:
            for cluster, topic in ((self.first.source, ""), (self.first.target, "east.")):
                cluster.create_topic(f"{topic}heartbeats", 1)
        self.second = Scene(*partitions, kafka=self.first.kafka, driver="there")
        self.running: list[Scene] = []
        self.written = 0

    def start(self, scene: Scene) -> None:
        scene.start()
        self.running.append(scene)

    def run(self, seconds: float, *busy: TopicPartition) -> None:
        """Run all scenes for a time, with a record about every second for ``busy`` partitions."""
        clock = self.first.clock
        end_s = clock.monotonic() + seconds
        while clock.monotonic() < end_s:
            for at in busy:
                self.written += 1
                self.first.source.append(
                    at.topic, str(self.written).encode(), partition=at.partition
                )
            for scene in self.running:
                turn(scene)

    def copiers(self, at: TopicPartition) -> list[Scene]:
        return [one for one in (self.first, self.second) if at in held(one)]

    def epoch(self) -> int:
        return max(self.first.stored(at).epoch for at in self.first.task.partitions)

    def close(self) -> None:
        self.first.close()
        self.second.close()


def turn(scene: Scene) -> None:
    scene.context.progress.read_to_end()
    scene.run_once()
    scene.commit()
    if scene.phase is TaskPhase.CLOSED:
        restart(scene)


def restart(scene: Scene) -> None:
    scene.restart()
    scene.restore_pool.run()
    scene.run_once()


def held(scene: Scene) -> set[TopicPartition]:
    running = scene.phase is TaskPhase.RUNNING
    return set(TopicPartitions.unpack(scene.task.status.partitions)) if running else set()


def contested(scene: Scene) -> Condition | None:
    return find_condition(scene.task.status.conditions, ConditionType.PARTITION_CONTESTED)


@pytest.fixture
def rivals() -> Iterator[Callable[..., Rivals]]:
    made: list[Rivals] = []

    def make(*partitions: TopicPartition) -> Rivals:
        made.append(Rivals(*partitions))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("busy", [(P0, P1), (P0,), ()], ids=["busy", "half idle", "idle"])
def test_of_two_runs_of_one_flow_one_copies(rivals: Any, busy: tuple[TopicPartition, ...]) -> None:
    two = rivals(P0, P1)
    two.start(two.first)
    two.run(10, *busy)
    two.start(two.second)
    two.run(60, *busy)
    epoch = two.epoch()
    assert epoch < 10, "they took over from each other again and again"
    two.run(120, *busy)
    assert two.epoch() == epoch
    (copier,) = two.copiers(P0)
    assert two.copiers(P1) == [copier]
    other = two.second if copier is two.first else two.first
    assert held(other) == set()
    assert other.phase is TaskPhase.RUNNING
    copies = [*two.first.copies(0), *two.first.copies(1)]
    assert len(set(copies)) == two.written
    assert len(copies) - two.written < 20


def test_the_one_that_gives_way_names_partitions_and_owner(rivals: Any) -> None:
    two = rivals(P0, P1)
    two.start(two.first)
    two.start(two.second)
    two.run(60, P0, P1)
    (copier,) = two.copiers(P0)
    other, name = (two.first, "there") if copier is two.second else (two.second, "here")
    found = contested(other)
    assert found is not None
    assert found.reason == "TakenAgain"
    assert f"orders/0-1: not copied by this task, default/f-source-task-0 on {name}/" in (
        found.message
    )
    assert other.context.contested("f-source-task-0").taken == 4
    assert lag_of(other.task).records == 0
    caught_up = find_condition(other.task.status.conditions, ConditionType.CAUGHT_UP)
    assert caught_up is not None
    assert caught_up.status == "False"
    assert other.task.status.observed_generation == other.herder.task.metadata.generation


def test_what_the_rival_leaves_is_copied_again(rivals: Any) -> None:
    two = rivals(P0, P1)
    two.start(two.first)
    two.start(two.second)
    two.run(60, P0, P1)
    (copier,) = two.copiers(P0)
    two.running.remove(copier)
    two.run(30, P0, P1)
    (other,) = two.running
    assert held(other) == ALL
    assert set(other.copies(0)) | set(other.copies(1)) >= {
        str(n).encode() for n in range(1, two.written)
    }
    two.run(400, P0, P1)
    assert contested(other) is None


def test_partitions_that_nobody_else_copies_go_on(rivals: Any) -> None:
    two = rivals(P0, P1)
    two.second.close()
    two.second = Scene(P0, kafka=two.first.kafka, driver="there")
    two.start(two.first)
    two.start(two.second)
    two.run(60, P0, P1)
    assert P1 in held(two.first)
    assert len(two.copiers(P0)) == 1
    epoch = two.epoch()
    two.run(120, P0, P1)
    assert two.epoch() == epoch


def test_heartbeats_are_left_to_the_flow_that_took_them_last_without_a_condition(
    rivals: Any,
) -> None:
    two = rivals(BEATS)
    two.start(two.first)
    two.run(10, BEATS)
    two.start(two.second)
    two.run(120, BEATS)
    assert two.copiers(BEATS) == [two.second]
    assert two.second.stored(BEATS).epoch <= 3
    assert contested(two.first) is None
    assert contested(two.second) is None
    assert two.first.context.contested("f-source-task-0").taken == 0
    caught_up = find_condition(two.first.task.status.conditions, ConditionType.CAUGHT_UP)
    assert caught_up is not None
    assert caught_up.status == "True"


def test_heartbeats_that_change_hands_repeatedly_are_no_contest(rivals: Any) -> None:
    two = rivals(BEATS)
    two.start(two.first)
    two.start(two.second)
    owners: set[str] = set()
    with capture_logs() as logged:
        for stopped in (two.second, two.first) * 3:
            two.run(30, BEATS)
            two.running.remove(stopped)  # its driver hangs, and the other flow takes them
            two.run(60, BEATS)
            owners.update(one.context.driver.name for one in two.copiers(BEATS))
            two.running.append(stopped)
            two.run(10, BEATS)
            assert contested(two.first) is None
            assert contested(two.second) is None
    given = [one["log_level"] for one in logged if one["event"] == "given way to another owner"]
    assert set(given) == {"info"}
    assert owners == {"here", "there"}, "they changed hands"
    assert [one.context.contested("f-source-task-0").taken for one in two.running] == [0, 0]


def test_a_hand_over_by_the_herder_is_no_contest(rivals: Any) -> None:
    """Another driver owns the unit for short times, and it returns at once each time."""
    two = rivals(P0, P1)
    first, second = two.first, two.second
    second.herder = first.herder
    two.start(first)
    for _ in range(4):
        restart(second)
        assert held(second) == ALL
        first.context.progress.read_to_end()
        first.commit()
        assert first.phase is TaskPhase.CLOSED
        restart(first)  # assigned to it again, because the other driver is lost
        assert held(first) == ALL
        assert contested(first) is None
    assert first.context.contested("f-source-task-0").taken == 0


def test_two_claims_of_the_same_epoch_are_noticed(rivals: Any) -> None:
    two = rivals(P0, P1)
    two.start(two.first)
    mine = two.first.stored(P0)
    two.first.take_away(P0, epoch=mine.epoch)
    two.first.commit()
    assert two.first.phase is TaskPhase.CLOSED


def test_a_restart_by_hand_takes_the_partitions_back_at_once(rivals: Any) -> None:
    two = rivals(P0, P1)
    two.start(two.first)
    two.start(two.second)
    two.run(60, P0, P1)
    (copier,) = two.copiers(P0)
    other = two.second if copier is two.first else two.first
    other.guard(other.task.suspend)
    while not other.guard(other.task.close):
        other.release_pool.run()
    restart(other)
    other.run_once()  # the claim came first
    other.run_once()
    assert held(other) == ALL
