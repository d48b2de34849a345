"""`headrace sandbox`: sentences and exit codes for problems that a user can solve."""

import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.cli.main import main
from headrace.cli.screen.exits import Exit


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def _errors(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["sandbox", *arguments]) == Exit.USAGE
    return capsys.readouterr().err


def test_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        errors = _errors(capsys, "up", "east", "--port", str(port))
    assert f"port {port} on 127.0.0.1 is in use. Set another port, or none" in errors


def test_unusable_java_home(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}, but there is no {tmp_path}/bin/java" in _errors(capsys, "up")


def test_too_little_disk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=300_000_000))
    errors = _errors(capsys, "up")
    assert (
        "sandbox default needs 1.1 GB of free disk for its data, and there are 0.3 GB in" in errors
    )
    assert str(tmp_path) in errors
    assert "XDG_STATE_HOME" in errors


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "East"], "'East' cannot name a sandbox or a cluster"),
        (["up", "east:three"], "'east:three': after the ':' goes the number of brokers"),
        (["up", "east:0"], "cluster east is to have 0 brokers: at least 1"),
        (["up", "east", "east"], "sandbox default has two clusters named east"),
        (["up", "--port", "80"], "its ports must be between 1024 and 65535"),
        (["up", "--sandbox", "../etc"], "'../etc' cannot name a sandbox"),
        (["status", "other"], "there is no sandbox other (existing sandboxes: none)"),
        (["down", "other"], "there is no sandbox other (existing sandboxes: none)"),
        (["consume", "orders", "--sandbox", "x"], "there is no sandbox x"),
    ],
)
def test_bad_input(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence in _errors(capsys, *arguments)


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_sandbox_that_does_not_run_ends_with_4(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sandbox", command, "orders"]) == Exit.UNREACHABLE
    assert "no sandbox runs: `headrace sandbox up` starts one" in capsys.readouterr().err


def test_nothing_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "status"]) == Exit.OK
    assert main(["sandbox", "down"]) == Exit.OK
    assert capsys.readouterr().out == (
        "There is no sandbox. `headrace sandbox up` starts one.\nThere is no sandbox to end.\n"
    )
