"""What a log shows of something that takes long."""

import io

import pytest
from progress import progress
from rich.console import Console


def test_a_file_has_lines_for_beginning_end_and_some_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("progress.time.monotonic", lambda: now)
    output = io.StringIO()
    with progress(Console(file=output), "Counting") as report:
        for count in range(5):
            report(f"{count} of 5")
            now += 10
    assert output.getvalue().splitlines() == [
        "Counting ...",
        "Counting: 2 of 5, 20 s",
        "Counting: 4 of 5, 40 s",
        "Counting: done, 50 s",
    ]


def test_a_failure_has_no_end() -> None:
    output = io.StringIO()
    with pytest.raises(KeyError), progress(Console(file=output), "Counting"):
        raise KeyError
    assert output.getvalue().splitlines() == ["Counting ..."]
