"""Random schedules of a source task with ``offsets.mode: Preserved``.

Each offset of the target has the source's content, even though instances are killed, replaced or
cut off and answers are lost.
"""

import random
import time
from collections.abc import Callable
from itertools import count

import pytest
from support.fake_kafka import GONE, MARKER
from support.preserved_scenes import PARTITIONS, PreservedScenes, preserved_scenes
from support.preserving_target import LATE
from support.source_tasks import TOPIC
from support.wire_kafka import LOST, REFUSED, UNANSWERED

from headrace.api import TaskPhase
from headrace.api.offsets import GapPolicy
from headrace.datapath.preserved import delivery, holes, takeover
from headrace.datapath.resources import LaneSettings

STEPS, FAULTS = 40, [*[None] * 5, LOST, UNANSWERED, REFUSED, LATE]


class Schedule:
    """Steps of one seed."""

    def __init__(self, scenes: PreservedScenes, seed: int) -> None:
        self._scenes = scenes
        self._random, self._numbers = random.Random(seed), count()
        self._drivers = count()

    def run(self) -> None:
        scenes = self._scenes
        for at in PARTITIONS:
            scenes.log(at).start = self._random.choice([0, 0, 1, 7, 40])
        scenes.target.fault = lambda *_: self._random.choice(FAULTS)
        scenes.target.end_is_lost = lambda: self._random.choice(FAULTS) == UNANSWERED
        scenes.scene.source.configs[TOPIC] = {
            "cleanup.policy": "compact",
            "delete.retention.ms": "86400000",
        }
        scenes.scene.task.activate()
        for _ in range(STEPS):
            self._random.choice(self._steps())()
            assert scenes.scene.phase is not TaskPhase.FAILED, scenes.scene.error
        scenes.target.fault = lambda *_: None
        scenes.target.end_is_lost = lambda: False
        scenes.scene.target.away = False
        scenes.until(lambda: all(map(scenes.is_copied, PARTITIONS)))
        scenes.assert_equal()

    def _steps(self) -> list[Callable[[], None]]:
        often = [self._append, self._turn, self._turn, self._commit]
        rare = [
            self._abort,
            self._stall,
            self._scenes.restart,
            self._be_replaced,
            self._turn_target_off_or_on,
        ]
        more = [self._delete_what_is_copied, self._compact, self._arrive, self._arrive]
        return [*often * 3, *rare, *more]

    def _append(self) -> None:
        at, source = self._random.choice(PARTITIONS), self._scenes.scene.source
        for _ in range(self._random.randint(1, 6)):
            if self._random.random() < 0.3:
                source.write(at, MARKER)
            else:
                source.append(TOPIC, b"%d" % next(self._numbers), partition=at.partition)

    def _abort(self) -> None:
        """Abort a transaction of many records, which no reader sees."""
        at, source = self._random.choice(PARTITIONS), self._scenes.scene.source
        for _ in range(self._random.randint(5, 15)):
            source.write(at, MARKER)

    def _turn(self) -> None:
        self._scenes.turn()
        time.sleep(self._random.random() / 50)

    def _commit(self) -> None:
        self._scenes.scene.commit()

    def _stall(self) -> None:
        self._scenes.turn(1.5)

    def _be_replaced(self) -> None:
        """Let another driver take over while this one still copies, as if it was cut off."""
        self._scenes.begin_again(f"driver-{next(self._drivers)}")

    def _turn_target_off_or_on(self) -> None:
        self._scenes.scene.target.away = not self._scenes.scene.target.away

    def _compact(self) -> None:
        """Remove any record except the last."""
        log = self._scenes.log(self._random.choice(PARTITIONS))
        if len(log.entries) > 1:
            offset = self._random.randrange(log.start, log.end - 1)
            with self._scenes.scene.source.changed:
                if log.at(offset) is not MARKER:
                    log.entries[offset - log.start] = GONE

    def _arrive(self) -> None:
        """Deliver a request that an earlier owner or connection sent."""
        if late := self._scenes.target.late:
            self._scenes.target.arrive(self._random.randrange(len(late)))

    def _delete_what_is_copied(self) -> None:
        """Delete stored records of the source. Others would be lost."""
        at, context = self._random.choice(PARTITIONS), self._scenes.scene.context
        known = context.stored(at) if context.progress.was_read else None
        log = self._scenes.log(at)
        if known and log.start < known.target_offset <= log.end:
            with self._scenes.scene.source.changed:  # no reader runs at the same time
                log.delete_before(self._random.randint(log.start, known.target_offset))


MORE = [pytest.param(seeds, marks=pytest.mark.long) for seeds in (range(1, 15), range(15, 30))]


@pytest.mark.parametrize("method", [GapPolicy.MARKERS, GapPolicy.ABORTED_FILLERS])
@pytest.mark.parametrize("seeds", [range(1), *MORE])
def test_each_offset_holds_what_the_source_holds_there(
    monkeypatch: pytest.MonkeyPatch, seeds: range, method: GapPolicy
) -> None:
    for module in (holes, delivery):
        monkeypatch.setattr(module, "BATCH_RECORDS", 5)
    monkeypatch.setattr(takeover, "TRANSACTION_OFFSETS", 11)
    for seed in seeds:
        try:
            with preserved_scenes(holes=method, settings=LaneSettings(marked_offsets=2)) as scenes:
                Schedule(scenes, seed).run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
