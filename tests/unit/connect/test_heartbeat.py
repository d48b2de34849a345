"""Conditions under which a heartbeat counts as written, with fake brokers."""

import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.api import ClusterAccess, ClusterSpec, ConditionStatus
from headrace.api.flow import Heartbeats
from headrace.connect.heartbeat import HeartbeatTask
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import KafkaError

Acknowledge = Callable[[KafkaError | None, object], None]


class FakeProducer:
    """Keeps the written records until the test sets their outcome."""

    def __init__(self) -> None:
        self.under_way: list[Acknowledge] = []

    def __len__(self) -> int:
        return len(self.under_way)

    def produce(self, *_: Any, on_delivery: Acknowledge, **__: Any) -> None:
        self.under_way.append(on_delivery)

    def poll(self, _: float) -> None: ...

    def flush(self, _: float) -> None: ...

    def purge(self) -> None: ...

    def answer(self, error: KafkaError | None = None) -> None:
        self.under_way.pop()(error, None)


class Scene:
    """Heartbeat task from ``east`` to ``west``, with a clock that the test sets."""

    def __init__(self, *, on_source: bool) -> None:
        self.now_s = 1000.0
        self.producers: dict[str, FakeProducer] = {}
        self.away = ""
        """Cluster that creates no topic."""
        self.forbids = ""
        """Cluster that rejects the creation."""
        self.hangs: threading.Event | None = None
        """Event until which ``west`` does not answer the creation."""
        access = {
            alias: ClusterAccess(ClusterSpec(alias=alias, bootstrap_servers="127.0.0.1:1"))
            for alias in ("east", "west")
        }
        context = SimpleNamespace(
            name="orders",
            clients=SimpleNamespace(producer=self._make_producer),
            clock=SimpleNamespace(time=lambda: self.now_s, monotonic=lambda: self.now_s),
            spec=SimpleNamespace(heartbeats=Heartbeats(on_source=on_source)),
            source=self._admin("east"),
            target=self._admin("west"),
            source_access=access["east"],
            target_access=access["west"],
        )
        task = SimpleNamespace(metadata=SimpleNamespace(generation=1))
        ownership = SimpleNamespace(name="orders-heartbeat-task-0", task=task)
        self.task = HeartbeatTask(ownership, context, None, lambda: None)
        # The tests do not depend on a busy machine: a call ends when its heartbeats are sent.
        self.task.grace_period_s = 30.0
        self.task.restore()

    def _admin(self, at: str) -> Any:
        return SimpleNamespace(describe=lambda _: {}, create_topic=partial(self._create_topic, at))

    def _create_topic(self, at: str, *_: Any, **__: Any) -> bool:
        if at == self.forbids:
            raise Fatal(f"{at} refuses: grant Create")
        if at == "west" and self.hangs is not None:
            self.hangs.wait()
        if at == self.away:
            raise Retriable(f"no broker of {at} answered")
        return True

    def _make_producer(self, at: ClusterAccess) -> FakeProducer:
        return self.producers.setdefault(at.alias, FakeProducer())


@pytest.mark.parametrize("on_source", [True, False])
def test_before_the_first_it_has_the_time_of_its_start(*, on_source: bool) -> None:
    scene = Scene(on_source=on_source)
    scene.now_s = 1003.0
    scene.task.run_once()
    sides = {"west", "east"} if on_source else {"west"}
    assert scene.task.beats == dict.fromkeys(sides, 1000.0)


def test_what_one_side_acknowledges_counts_for_that_side_and_stays() -> None:
    scene = Scene(on_source=True)
    scene.task.run_once()
    scene.now_s = 1002.0
    scene.producers["west"].answer()
    assert scene.task.beats == {"west": 1002.0, "east": 1000.0}
    scene.task.restore()
    assert scene.task.beats == {"west": 1002.0, "east": 1000.0}


def test_what_is_refused_does_not_count() -> None:
    scene = Scene(on_source=False)
    scene.task.run_once()
    scene.now_s = 1002.0
    scene.producers["west"].answer(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert scene.task.beats == {"west": 1000.0}


def test_while_a_side_is_silent_the_other_one_goes_on() -> None:
    scene = Scene(on_source=True)
    scene.producers["east"].answer()
    for now_s, step in ((1006.0, scene.task.run_once), (1007.0, scene.task.restore)):
        scene.now_s = now_s
        step()
        assert "west did not acknowledge a heartbeat" in str(scene.task.problem)
        scene.producers["east"].answer()
        assert scene.task.beats == {"west": 1000.0, "east": now_s}
    scene.producers["west"].answer()
    scene.task.restore()
    assert scene.task.beats == {"west": 1007.0, "east": 1007.0}


def test_while_a_side_cannot_have_the_topic_the_other_one_goes_on() -> None:
    scene = Scene(on_source=True)
    scene.away = "west"
    scene.producers["west"].answer(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    scene.producers["east"].answer()
    for now_s, step, message in (
        (1001.0, scene.task.run_once, "write heartbeats"),
        (1002.0, scene.task.restore, "no broker of west"),
    ):
        scene.now_s = now_s
        step()
        assert message in str(scene.task.problem)
        scene.producers["east"].answer()
        assert scene.task.beats == {"west": 1000.0, "east": now_s}
    scene.away = ""
    scene.now_s = 1012.0
    scene.task.restore()
    scene.producers["west"].answer()
    assert scene.task.beats["west"] == 1012.0


def test_a_side_that_refuses_them_is_reported_and_the_other_one_goes_on() -> None:
    scene = Scene(on_source=True)
    scene.forbids = "west"
    scene.producers["east"].answer()
    scene.producers["west"].answer(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    for now_s in (1006.0, 1012.0, 1018.0):
        scene.now_s = now_s
        scene.task.run_once()
        scene.producers["east"].answer()
        assert scene.task.beats == {"west": 1000.0, "east": now_s}
    assert "west refuses: grant Create" in str(scene.task.problem)
    (ready,) = scene.task.status.conditions
    assert (ready.status, ready.message) == (ConditionStatus.FALSE, "west refuses: grant Create")
    scene.forbids = ""
    scene.now_s = 1024.0
    scene.task.run_once()
    scene.producers["west"].answer()
    scene.task.run_once()
    assert (scene.task.problem, scene.task.status.conditions) == (None, ())
    assert scene.task.beats["west"] == 1024.0


def test_a_task_fails_when_all_its_sides_refuse_them() -> None:
    scene = Scene(on_source=False)
    scene.forbids = "west"
    scene.producers["west"].answer(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(HeadraceError, match="write heartbeats"):
        scene.task.run_once()
    scene.now_s += 10
    with pytest.raises(Fatal, match="grant Create"):
        scene.task.run_once()


def test_a_side_that_does_not_answer_does_not_delay_the_other_one() -> None:
    scene = Scene(on_source=True)
    scene.producers["east"].answer()
    scene.producers["west"].answer(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    scene.now_s = 1001.0
    scene.task.run_once()
    scene.producers["east"].answer()
    scene.task.grace_period_s = 0.05
    scene.hangs = threading.Event()
    try:
        for now_s in (1010.0, 1011.0, 1012.0):
            scene.now_s = now_s
            scene.task.run_once()
            while not scene.producers["east"]:
                time.sleep(0.01)
            scene.producers["east"].answer()
            assert scene.task.beats["east"] == now_s
        assert not scene.hangs.is_set()
    finally:
        scene.hangs.set()
        scene.task.close()


def test_a_heartbeat_waits_for_its_time_however_often_the_task_is_woken() -> None:
    scene = Scene(on_source=False)
    scene.producers["west"].answer()
    scene.now_s = 1000.5
    scene.task.run_once()
    assert len(scene.producers["west"]) == 0
    scene.now_s = 1001.0
    scene.task.run_once()
    assert len(scene.producers["west"]) == 1


def test_a_side_begins_and_ends_as_the_spec_says_while_it_runs() -> None:
    scene = Scene(on_source=False)
    spec: Any = scene.task.context.spec
    spec.heartbeats = Heartbeats(on_source=True)
    scene.now_s = 1001.0
    scene.task.run_once()
    scene.producers["east"].answer()
    assert scene.task.beats == {"west": 1000.0, "east": 1001.0}
    spec.heartbeats = Heartbeats(on_source=False)
    scene.now_s = 1002.0
    scene.task.run_once()
    assert len(scene.producers["east"]) == 0
    assert scene.task.beats == {"west": 1000.0}
