"""Progress of a long operation in a log."""

import io
import re
from collections.abc import Callable

import progress
import pytest
from rich.console import Console


def test_a_file_has_lines_for_beginning_end_and_some_between(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    output = io.StringIO()
    with progress.progress(Console(file=output), "Counting") as report:
        wait_until(lambda: "Counting: still working, 0 s" in output.getvalue(), within_s=20)
        report("2 of 5")
        # It reports nothing further, as in a long wait: lines are printed nevertheless.
        wait_until(lambda: output.getvalue().count("Counting: 2 of 5, ") > 1, within_s=20)
    first, *_, last = output.getvalue().splitlines()
    assert first == "Counting ..."
    assert re.fullmatch(r"Counting: done, \d+ s", last)


def test_a_failure_has_no_end() -> None:
    output = io.StringIO()
    with pytest.raises(KeyError), progress.progress(Console(file=output), "Counting"):
        raise KeyError
    assert output.getvalue().splitlines() == ["Counting ..."]
