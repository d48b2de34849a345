"""A source task with ``offsets.mode: Preserved`` on clusters in memory.

Mover and fence are the product's.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.fake_broker import Serve, serving
from support.fake_kafka import GONE, MARKER, FakeLog, FakeRecord
from support.kept_lanes import KeepingMover, KeptLanes
from support.patience import WITHIN_S
from support.preserving_target import PreservingTarget
from support.source_tasks import COPY, FLOW, P0, P1, TOPIC, Scene

from headrace.api import ReplicationFlow, TaskPhase
from headrace.api.offsets import GapPolicy
from headrace.api.partitions import TopicPartition
from headrace.datapath import PreservedMover
from headrace.datapath.resources import DEFAULT_LANE_SETTINGS, LaneSettings

PRESERVED = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "f"},
        "spec": {
            **FLOW.spec.model_dump(by_alias=True, exclude_none=True, mode="json"),
            "offsets": {"mode": "Preserved"},
        },
    }
)
PARTITIONS = (P0, P1)


class _Mover(KeepingMover, PreservedMover):
    """Mover with preserved offsets that keeps its lanes."""


class PreservedScenes:
    """Scenes one after the other, on the same clusters."""

    def __init__(
        self,
        serve: Serve,
        *partitions: TopicPartition,
        holes: GapPolicy = GapPolicy.MARKERS,
        settings: LaneSettings = DEFAULT_LANE_SETTINGS,
    ) -> None:
        self._partitions, self._holes, self._settings = partitions, holes, settings
        self._lanes = KeptLanes(self._make_mover)
        self._scenes: list[Scene] = []
        self.scene = self._make_scene()
        self.source = PreservingTarget(serve, self.scene.source, TOPIC, 2)
        self.target = PreservingTarget(serve, self.scene.target, COPY, 2)

    def _make_scene(self, **named: Any) -> Scene:
        make_mover = self._lanes.next_scene()
        scene = Scene(*self._partitions, flow=PRESERVED, make_mover=make_mover, **named)
        self._scenes.append(scene)
        return scene

    def _make_mover(self, target_topic: Callable[[str], str]) -> _Mover:
        return _Mover(
            self.source.access,
            self.target.access,
            target_topic,
            holes=self._holes,
            settings=self._settings,
        )

    def begin_again(self, driver: str) -> None:
        """Start another owner, even if the last one still runs."""
        self.scene = self._make_scene(kafka=self.scene.kafka, driver=driver)
        self.scene.task.activate()

    def kill(self) -> None:
        """Kill the process like ``kill -9``: requests in flight may still reach a broker."""
        self.scene.close()
        self._lanes.abandon(WITHIN_S)

    def close(self) -> None:
        """Kill the process and all earlier ones."""
        for scene in self._scenes:
            scene.close()
        self._lanes.close(WITHIN_S)

    def restart(self) -> None:
        """Kill the task, and start it again with the same driver."""
        self.kill()
        self.begin_again(self.scene.driver.name)

    def turn(self, clock_s: float = 0.05) -> None:
        """Advance the clock and run the task once, while the loop's thread copies."""
        self.scene.clock.advance(clock_s)
        self.scene.run_once()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Run turns and commits until the condition is true."""
        deadline_s = time.monotonic() + WITHIN_S
        while not (found := condition()):
            state = [(self.log(at).end, self.copy(at).end) for at in PARTITIONS]
            assert time.monotonic() < deadline_s, (self.scene.error, self.scene.phase, state)
            if self.scene.phase in (TaskPhase.CLOSED, TaskPhase.FAILED):
                self.restart()
            self.turn(0.35)
            self.scene.commit()
            time.sleep(0.005)
        return found

    def is_copied(self, at: TopicPartition) -> bool:
        """Return whether a partition is copied to its end, and its progress stored."""
        known = self.scene.context.progress.was_read
        return known and self.scene.position(at) == self.log(at).end

    def log(self, at: TopicPartition) -> FakeLog:
        """Return the source's log of a partition."""
        return self.scene.source.logs[at]

    def copy(self, at: TopicPartition) -> FakeLog:
        """Return the target's log of a partition."""
        return self.scene.target.logs[TopicPartition(COPY, at.partition)]

    def fill(self, cells: str, at: TopicPartition = P0) -> None:
        """Write a record to the source for each character; ``-`` is a marker."""
        for cell in cells:
            record = MARKER if cell == "-" else FakeRecord(b"key", cell.encode(), 1_000)
            self.scene.source.write(at, record)

    def cells(self, at: TopicPartition = P0) -> str:
        """Return the target's log of a partition as text."""
        entries = self.copy(at).entries
        return "".join("-" if one is MARKER else (one.value or b"").decode() for one in entries)

    def assert_equal(self) -> None:
        """Assert that source and target have the same record at every offset that both hold."""
        for at in PARTITIONS:
            wanted, found = self.log(at), self.copy(at)
            assert found.end == wanted.end, at
            for offset in range(max(wanted.start, found.start), wanted.end):
                if wanted.at(offset) is GONE:  # it may have been there when it was copied
                    continue
                assert _content(found.at(offset)) == _content(wanted.at(offset)), (at, offset)


def _content(one: FakeRecord | None) -> object:
    return one and (one.key, one.value, one.timestamp_ms)


@contextmanager
def preserved_scenes(
    *partitions: TopicPartition,
    holes: GapPolicy = GapPolicy.MARKERS,
    settings: LaneSettings = DEFAULT_LANE_SETTINGS,
) -> Iterator[PreservedScenes]:
    """Yield scenes with these partitions of the task."""
    with serving() as serve:
        scenes = PreservedScenes(serve, *partitions, holes=holes, settings=settings)
        try:
            yield scenes
        finally:
            scenes.close()
