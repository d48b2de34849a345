"""Fault commands of a test are run and waited for, and their failures are reported."""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.api import ChaosAction, ChaosStep
from headrace.cli.mirror_test.local_faults import CommandFaults
from headrace.errors import HeadraceError


def step(*command: str) -> ChaosStep:
    return ChaosStep(action=ChaosAction.RUN_COMMAND, at_seconds=1, command=command)


def python(script: str) -> ChaosStep:
    return step(sys.executable, "-c", script)


class Target:
    """Target that records the start time of its last query for messages."""

    def __init__(self) -> None:
        self.since_ms = 0

    def since(self, time_ms: int) -> Callable[[], bool]:
        self.since_ms = time_ms
        return lambda: True


def test_a_command_is_run_and_only_what_is_sent_after_its_end_shows_a_recovery(
    tmp_path: Path,
) -> None:
    target, before_ms = Target(), time.time_ns() // 1_000_000
    done = tmp_path / "done"
    script = f"import time; open({str(done)!r}, 'w').write(str(time.time_ns()))"
    injection = CommandFaults(target.since).inject(python(script))
    ran_ms = int(done.read_text()) // 1_000_000
    assert before_ms <= injection.at_ms <= ran_ms <= target.since_ms
    assert injection.recovered()
    assert injection.driver is not None
    assert injection.driver.startswith(sys.executable)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (python("import sys; sys.exit('no such process')"), "ended with code 1: no such process"),
        (python("import sys; sys.exit(3)"), "ended with code 3$"),
        (step("/no/such/program"), "/no/such/program cannot be run: No such file or directory"),
    ],
)
def test_a_command_that_fails_is_a_sentence(command: ChaosStep, sentence: str) -> None:
    with pytest.raises(HeadraceError, match=sentence):
        CommandFaults(Target().since).inject(command)


def test_a_command_that_does_not_end_is_given_up() -> None:
    forever = step("sleep", "600")
    with pytest.raises(HeadraceError, match=re.escape("sleep 600 did not end within 0 s")):
        CommandFaults(Target().since, patience_s=0.05).inject(forever)
