"""The command itself: exit codes, and errors if a part is missing."""

import errno
import sys

import pytest

from headrace.cli import validate
from headrace.cli.main import group, main
from headrace.cli.screen.exits import Exit, exit_for
from headrace.errors import Fatal, GaveUp, InvalidSpec, NotRunning, Retriable, Unreachable


def test_errors_have_their_exit_codes() -> None:
    errors = (Fatal, Retriable, GaveUp, InvalidSpec, NotRunning, Unreachable)
    assert {error: exit_for(error("x")) for error in errors} == {
        Fatal: Exit.FAILED,
        Retriable: Exit.FAILED,
        GaveUp: Exit.INCONCLUSIVE,
        InvalidSpec: Exit.USAGE,
        NotRunning: Exit.UNREACHABLE,
        Unreachable: Exit.UNREACHABLE,
    }


@pytest.mark.parametrize("argv", [["frobnicate"], ["run"], ["run", "--drivers", "0", "x"]])
def test_usage_errors_end_with_3(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 3
    assert "Error: " in capsys.readouterr().err


def test_a_missing_extra_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "headrace.cli.sandbox", raising=False)
    monkeypatch.setitem(sys.modules, "psutil", None)
    for name in [name for name in sys.modules if name.startswith("headrace.sandbox")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["sandbox", "status"]) == 3
    errors = capsys.readouterr().err
    assert "`headrace sandbox status` needs the package psutil" in errors
    assert "the extra `spark` of headrace" in errors


def test_a_file_that_is_not_there_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nowhere.yaml"]) == 3
    assert capsys.readouterr().err.startswith("headrace: ")


def test_a_fault_of_ours_is_a_sentence_and_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr(validate, "load", broken)
    assert main(["validate", "x.yaml"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("headrace: internal error, please report it: RuntimeError('oops')")
    assert "Traceback" not in errors


def test_an_error_of_the_system_is_a_sentence_and_no_internal_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/here")

    monkeypatch.setattr(group, "main", full)
    assert main(["status"]) == Exit.FAILED
    assert capsys.readouterr().err == "headrace: /var/lib/here: No space left on device\n"
