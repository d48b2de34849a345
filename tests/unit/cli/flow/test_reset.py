"""``headrace flow reset`` on a run without drivers, with brokers in memory."""

from collections.abc import Callable
from typing import Any

import pytest
from support.preserved_scenes import PRESERVED
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import FlowState, PausedPartitions, Resets
from headrace.api.offsets import Offsets, OffsetsMode
from headrace.cli.flow import flow_access
from headrace.control import control
from headrace.standalone import StandaloneHerder

Say = Callable[..., str]


def asked(herder: StandaloneHerder) -> Resets:
    return Resets.from_metadata(herder.flow("f").metadata)


def test_it_says_what_is_copied_again(herder: StandaloneHerder, say: Say) -> None:
    assert say("flow", "reset", "f", "orders/1") == (
        "orders/1 of f: reset. With spec.startFrom.mode: Earliest all records that are on the "
        "source are "
        "copied again; records that the target already has stay there, and are then there twice.\n"
    )
    assert (asked(herder).time_ms(P0), asked(herder).time_ms(P1) > 0) == (0, True)


def test_with_preserved_offsets_it_says_that_nothing_is_copied_again(
    herder: StandaloneHerder, say: Say
) -> None:
    herder.change_spec("f", offsets=Offsets(mode=OffsetsMode.PRESERVED))
    assert say("flow", "reset", "f", "orders/1") == (
        "orders/1 of f: reset. With offsets.mode: Preserved the copy is compared with the source, "
        "and records that the target has are not copied again. `headrace flow rebuild f TOPIC` "
        "deletes and rebuilds a copy.\n"
    )


def test_it_says_what_keeps_the_flow_from_copying(herder: StandaloneHerder, say: Say) -> None:
    paused = (PausedPartitions(topic=TOPIC, partitions="1"),)
    herder.change_spec("f", state=FlowState.STOPPED, paused_partitions=paused)
    printed = say("flow", "reset", "f", TOPIC)
    assert "orders/0-1 of f: reset." in printed
    assert "But spec.state is Stopped: run `headrace flow resume f`." in printed
    assert "But paused, by spec.pausedPartitions: orders/1." in printed


def test_a_dry_run_asks_the_brokers_and_changes_nothing(
    herder: StandaloneHerder, say: Say, scene: Scene
) -> None:
    scene.source.append(TOPIC, b"a", b"b")
    scene.start()
    scene.settle()
    scene.source.append(TOPIC, b"c")
    rows = say("flow", "reset", "f", TOPIC, "--dry-run").splitlines()
    assert [row.split() for row in rows[:3]] == [
        ["PARTITION", "STORED", "STARTS", "AT", "END", "COPIED", "AGAIN"],
        ["orders/0", "2", "0", "3", "2"],
        ["orders/1", "0", "0", "0", "0"],
    ]
    assert rows[3] == (
        "With spec.startFrom.mode: Earliest 2 offsets would be copied again, as the source is now "
        "(the number of records can be lower). Nothing was changed."
    )
    assert asked(herder).times == {}


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_what_the_flow_does_not_copy_is_refused(
    herder: StandaloneHerder, say: Say, options: list[str]
) -> None:
    assert "flow f does not copy orders/7; of orders it copies 0-1" in say(
        "flow", "reset", "f", "orders/7", *options, code=3
    )
    assert asked(herder).times == {}


@pytest.mark.parametrize("paused", ["1", None])
def test_rebuild_resumes_only_the_partitions_that_it_has_paused(
    herder: StandaloneHerder,
    say: Say,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    paused: str | None,
) -> None:
    """The target does not respond after the pause, so that the rebuild ends at once."""
    pauses = (PausedPartitions(topic=TOPIC, partitions=paused),)
    herder.change_spec("f", state=FlowState.STOPPED, paused_partitions=pauses)
    context = Scene(kafka=scene.kafka, flow=PRESERVED).context
    monkeypatch.setattr(flow_access, "FlowContext", lambda *_, **__: context)
    request, asked = control.request, list[str]()

    def ask(flow: str, verb: str, **arguments: Any) -> dict[str, Any]:
        asked.append(verb)
        scene.target.away = asked.count("reset") > 1
        return request(flow, verb, **arguments)

    monkeypatch.setattr(control, "request", ask)
    assert "no broker of west answered" in say("flow", "rebuild", "f", TOPIC, "--yes", code=1)
    assert ("pause-partitions" in asked) is (paused is not None)
    assert herder.flow("f").spec.paused_partitions == pauses


def test_rebuild_deletes_nothing_if_the_pause_has_no_effect(
    herder: StandaloneHerder, say: Say, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec of a flow in a cluster may be invalid, so that its drivers do not follow it."""
    context = Scene(kafka=scene.kafka, flow=PRESERVED).context
    monkeypatch.setattr(flow_access, "FlowContext", lambda *_, **__: context)
    request = control.request

    def ask(flow: str, verb: str, **arguments: Any) -> dict[str, Any]:
        return {**request(flow, verb, **arguments), "notInForce": "spec.tasks is wrong"}

    monkeypatch.setattr(control, "request", ask)
    said = say("flow", "rebuild", "f", TOPIC, "--yes", code=3)
    assert "no effect until the spec of f is corrected: spec.tasks is wrong" in said
    assert COPY in scene.target.ids
    assert herder.flow("f").spec.paused_partitions == ()


def test_a_flow_that_does_not_run_is_named(
    say: Say, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    assert "flow nothing is not running here" in say("flow", "reset", "nothing", TOPIC, code=4)
