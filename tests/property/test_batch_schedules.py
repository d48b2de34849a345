"""Random schedules of a source task with the batch mover's lanes.

In the end the target has the source's records, each once and in order. ``source_schedules`` does
the same on clusters in memory.
"""

import random
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from support.fake_broker import serving
from support.fake_kafka import MARKER
from support.kept_lanes import KeepingMover, KeptLanes
from support.source_tasks import COPY, P0, P1, TOPIC, Scene
from support.wire_fencing import WireFencing
from support.wire_kafka import LOST, REFUSED, UNANSWERED, WireCluster

from headrace.api import TaskPhase
from headrace.api.partitions import TopicPartition

STEPS, FAULTS = 40, [None, None, None, LOST, UNANSWERED, REFUSED]
WITHIN_S = 30.0


class Schedule:
    """Steps of one seed."""

    def __init__(self, seed: int) -> None:
        self._random, self._numbers = random.Random(seed), count()
        self._drivers = count()
        self._lanes = KeptLanes(self._make_mover)
        self._scenes: list[Scene] = []

    def run(self) -> None:
        with serving() as serve:
            self._scene = scene = self._make_scene()
            self._source = WireCluster(serve, scene.source, TOPIC, 2)
            self._target = WireCluster(serve, scene.target, COPY, 2)
            self._fencing = WireFencing(self._source, self._target)
            self._source.partition_bytes = 1_000
            self._target.fault = lambda *_: self._random.choice(FAULTS)
            try:
                self._scene.task.activate()
                for _ in range(STEPS):
                    self._random.choice(self._steps())()
                    assert self._scene.phase is not TaskPhase.FAILED, self._scene.error
                self._target.fault = lambda *_: None
                self._scene.target.away = False
                self._come_to_the_end()
            finally:
                for one in self._scenes:
                    one.close()
                self._lanes.close(WITHIN_S)

    def _make_scene(self, **named: Any) -> Scene:
        self._scenes.append(Scene(make_mover=self._lanes.next_scene(), **named))
        return self._scenes[-1]

    def _make_mover(self, target_topic: Callable[[str], str]) -> KeepingMover:
        mover = KeepingMover(self._source.access, self._target.access, target_topic)
        mover.fencing = self._fencing  # type: ignore[assignment]
        return mover

    def _steps(self) -> list[Callable[[], None]]:
        often = [self._append, self._turn, self._turn, self._commit]
        return [*often * 3, self._stall, self._die, self._be_replaced, self._turn_target_off_or_on]

    def _append(self) -> None:
        at = self._random.choice((P0, P1))
        if self._random.random() < 0.1:
            self._scene.source.write(at, MARKER)
        values = [b"%d" % next(self._numbers) for _ in range(self._random.randint(1, 5))]
        for value in values:
            self._scene.source.append(TOPIC, value, partition=at.partition)

    def _turn(self) -> None:
        self._scene.clock.advance(0.05)
        self._scene.run_once()
        time.sleep(self._random.random() / 50)  # the loop's thread copies at the same time

    def _commit(self) -> None:
        self._scene.commit()

    def _stall(self) -> None:
        self._scene.clock.advance(1.5)
        self._scene.run_once()

    def _kill(self) -> None:
        """Kill the instance. Its requests in flight may still reach a broker."""
        self._scene.close()
        self._lanes.abandon(WITHIN_S)

    def _die(self) -> None:
        self._kill()
        self._begin_again(self._scene.driver.name)

    def _be_replaced(self) -> None:
        """Let another driver take over while this one still copies, as if it was cut off."""
        self._begin_again(f"driver-{next(self._drivers)}")

    def _begin_again(self, driver: str) -> None:
        self._scene = self._make_scene(kafka=self._scene.kafka, driver=driver)
        self._scene.task.activate()

    def _turn_target_off_or_on(self) -> None:
        self._scene.target.away = not self._scene.target.away

    def _is_copied(self, at: TopicPartition) -> bool:
        known = self._scene.context.progress.was_read
        return known and self._scene.position(at) == self._scene.log(at).end

    def _come_to_the_end(self) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not all(map(self._is_copied, (P0, P1))):
            assert time.monotonic() < deadline_s, (self._scene.error, self._scene.phase)
            if self._scene.phase in (TaskPhase.CLOSED, TaskPhase.FAILED):
                self._die()
            self._turn()
            self._scene.clock.advance(0.3)
            self._scene.commit()
        for at in (P0, P1):
            wanted = self._scene.source.records(TOPIC, at.partition)
            found = self._scene.target.records(COPY, at.partition)
            assert found == wanted, f"{TopicPartition(COPY, at.partition)}"


MORE = [pytest.param(five, marks=pytest.mark.long) for five in range(1, 6)]


@pytest.mark.parametrize("five", [0, *MORE])
def test_each_record_is_copied_once_and_in_order(five: int) -> None:
    for seed in range(5 * five, 5 * five + 5):
        try:
            Schedule(seed).run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
