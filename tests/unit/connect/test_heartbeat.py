"""When a heartbeat counts as written; the brokers are fakes."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.api import ClusterAccess, ClusterSpec
from headrace.api.flow import Heartbeats
from headrace.connect import heartbeat as module
from headrace.connect.heartbeat import HeartbeatTask
from headrace.errors import Retriable
from headrace.kafka import KafkaError

Acknowledge = Callable[[KafkaError | None, object], None]


class FakeProducer:
    """Keeps what is written until the test says what became of it."""

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
    """A heartbeat task from ``east`` to ``west``, and a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, on_source: bool) -> None:
        self.now_s = 1000.0
        self.producers: dict[str, FakeProducer] = {}
        self.away = ""
        """The cluster that makes no topic."""
        access = {
            alias: ClusterAccess(ClusterSpec(alias=alias, bootstrap_servers="127.0.0.1:1"))
            for alias in ("east", "west")
        }
        context = SimpleNamespace(
            name="orders",
            clock=SimpleNamespace(time=lambda: self.now_s, monotonic=lambda: self.now_s),
            spec=SimpleNamespace(heartbeats=Heartbeats(on_source=on_source)),
            source=SimpleNamespace(create_topic=partial(self._create_topic, "east")),
            target=SimpleNamespace(create_topic=partial(self._create_topic, "west")),
            source_access=access["east"],
            target_access=access["west"],
        )
        monkeypatch.setattr(module, "make_producer", self._make_producer)
        ownership = SimpleNamespace(name="orders-heartbeat-task-0")
        self.task = HeartbeatTask(ownership, context, None, lambda: None)
        self.task.restore()

    def _create_topic(self, at: str, *_: Any, **__: Any) -> bool:
        if at == self.away:
            raise Retriable(f"no broker of {at} answered")
        return True

    def _make_producer(self, at: ClusterAccess) -> FakeProducer:
        return self.producers.setdefault(at.alias, FakeProducer())


@pytest.mark.parametrize("on_source", [True, False])
def test_before_the_first_it_has_the_time_of_its_start(
    monkeypatch: pytest.MonkeyPatch, *, on_source: bool
) -> None:
    scene = Scene(monkeypatch, on_source=on_source)
    scene.now_s = 1003.0
    scene.task.run_once()
    sides = {"west", "east"} if on_source else {"west"}
    assert scene.task.beats == dict.fromkeys(sides, 1000.0)


def test_what_one_side_acknowledges_counts_for_that_side_and_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, on_source=True)
    scene.task.run_once()
    scene.now_s = 1002.0
    scene.producers["west"].answer()
    assert scene.task.beats == {"west": 1002.0, "east": 1000.0}
    scene.task.restore()
    assert scene.task.beats == {"west": 1002.0, "east": 1000.0}


def test_what_is_refused_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, on_source=False)
    scene.task.run_once()
    scene.now_s = 1002.0
    scene.producers["west"].answer(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert scene.task.beats == {"west": 1000.0}


def test_while_a_side_is_silent_the_other_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, on_source=True)
    scene.producers["east"].answer()
    for now_s, step in ((1006.0, scene.task.run_once), (1007.0, scene.task.restore)):
        scene.now_s = now_s
        with pytest.raises(Retriable, match="west did not acknowledge a heartbeat"):
            step()
        scene.producers["east"].answer()
        assert scene.task.beats == {"west": 1000.0, "east": now_s}
    scene.producers["west"].answer()
    scene.task.restore()
    assert scene.task.beats == {"west": 1007.0, "east": 1007.0}


def test_while_a_side_cannot_have_the_topic_the_other_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, on_source=True)
    scene.away = "west"
    scene.producers["west"].answer(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    scene.producers["east"].answer()
    for now_s, step, message in (
        (1001.0, scene.task.run_once, "write heartbeats"),
        (1002.0, scene.task.restore, "no broker of west"),
    ):
        scene.now_s = now_s
        with pytest.raises(Retriable, match=message):
            step()
        scene.producers["east"].answer()
        assert scene.task.beats == {"west": 1000.0, "east": now_s}
    scene.away = ""
    scene.task.restore()
    scene.producers["west"].answer()
    assert scene.task.beats["west"] == 1002.0


def test_a_heartbeat_waits_for_its_time_however_often_the_task_is_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, on_source=False)
    scene.producers["west"].answer()
    scene.now_s = 1000.5
    scene.task.run_once()
    assert len(scene.producers["west"]) == 0
    scene.now_s = 1001.0
    scene.task.run_once()
    assert len(scene.producers["west"]) == 1


def test_a_side_begins_and_ends_as_the_spec_says_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, on_source=False)
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
