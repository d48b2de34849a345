"""``headrace reset`` on this machine: the run is one without drivers, the brokers are in memory."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from support.source_tasks import FLOW, P0, P1, TOPIC, Scene

from headrace.api import FlowState, PausedPartitions, Resets, TaskType, TopicPartitions
from headrace.cli.main import main
from headrace.standalone import StandaloneHerder
from headrace.standalone.verbs import answer

Say = Callable[..., str]


@pytest.fixture
def herder(monkeypatch: pytest.MonkeyPatch) -> StandaloneHerder:
    """Of a run whose flow has one task."""

    async def make() -> StandaloneHerder:
        return StandaloneHerder([FLOW], 0)

    herder = asyncio.run(make())
    herder._store.put("f", TaskType.SOURCE_TASK, 0, TopicPartitions.pack([P0, P1]))

    def request(flow: str, verb: str, **arguments: Any) -> dict[str, Any]:
        return asyncio.run(answer(herder, flow, verb, arguments))

    monkeypatch.setattr("headrace.control.control.request", request)
    return herder


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    structlog.reset_defaults()  # an earlier command's logs go to a stream that is closed by now
    scene = Scene()
    monkeypatch.setattr("headrace.cli.flow_access.FlowContext", lambda *_: scene.context)
    yield scene
    scene.close()


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*command: str, code: int = 0) -> str:
        capsys.readouterr()  # what was logged before
        assert main(["reset", *command]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


def asked(herder: StandaloneHerder) -> Resets:
    return Resets.asked(herder.flow("f").metadata)


def test_it_says_what_is_copied_again(herder: StandaloneHerder, say: Say) -> None:
    assert say("f", "orders/1") == (
        "orders/1 of f: reset. By spec.startFrom: Earliest all records that are on the source are "
        "copied again; what the target has of them stays there, and is there twice then.\n"
    )
    assert (asked(herder).time_ms(P0), asked(herder).time_ms(P1) > 0) == (0, True)


def test_it_says_what_keeps_the_flow_from_copying(herder: StandaloneHerder, say: Say) -> None:
    paused = (PausedPartitions(topic=TOPIC, partitions="1"),)
    herder.change_spec("f", state=FlowState.STOPPED, paused_partitions=paused)
    printed = say("f", TOPIC)
    assert "orders/0-1 of f: reset." in printed
    assert "But spec.state is Stopped: `headrace resume f` ends that." in printed
    assert "But paused, by spec.pausedPartitions: orders/1." in printed


def test_a_dry_run_asks_the_brokers_and_changes_nothing(
    herder: StandaloneHerder, say: Say, scene: Scene
) -> None:
    scene.source.append(TOPIC, b"a", b"b")
    scene.start()
    scene.settle()
    scene.source.append(TOPIC, b"c")
    rows = say("f", TOPIC, "--dry-run").splitlines()
    assert [row.split() for row in rows[:3]] == [
        ["PARTITION", "STORED", "STARTS", "AT", "END", "COPIED", "AGAIN"],
        ["orders/0", "2", "0", "3", "2"],
        ["orders/1", "0", "0", "0", "0"],
    ]
    assert rows[3] == (
        "By spec.startFrom: Earliest 2 offsets would be copied again (at most so many records), "
        "from those that are on the source now. Nothing was changed."
    )
    assert asked(herder).times == {}


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_what_the_flow_does_not_copy_is_refused(
    herder: StandaloneHerder, say: Say, options: list[str]
) -> None:
    assert "flow f does not copy orders/7; of orders it copies 0-1" in say(
        "f", "orders/7", *options, code=3
    )
    assert asked(herder).times == {}


def test_a_flow_that_does_not_run_is_named(
    say: Say, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    assert "flow nothing is not running here" in say("nothing", TOPIC, code=3)
