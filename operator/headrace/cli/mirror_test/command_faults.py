"""Faults that a program makes which the test names: for mirrors that headrace does not run."""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

from headrace.api import ChaosAction, ChaosStep
from headrace.chaos import Injection, Since
from headrace.errors import GaveUp, InvalidSpec

PATIENCE_S = 30.0
"""How long a command may take: meanwhile the test observes nothing else."""
_SHOWN = 200


def refused(steps: Sequence[ChaosStep]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Why commands are not run unless one says so: a field and a sentence for each."""
    for index, step in enumerate(steps):
        if step.action is ChaosAction.RUN_COMMAND:
            yield (
                ("spec", "chaos", index, "command"),
                f"spec.chaos[{index}].command: this test runs a program on this machine; if you "
                "trust it, add --run-commands",
            )


class CommandFaults:
    """Runs commands, and waits for their end."""

    def __init__(self, since: Since, patience_s: float = PATIENCE_S) -> None:
        self._since = since
        self._patience_s = patience_s

    def inject(self, step: ChaosStep) -> Injection:
        """See ``FaultInjector``. The recovery time begins with the command; what was sent before
        its end may have arrived before the fault, and says nothing of a recovery."""
        command, at_ms = list(step.command or ()), _now_ms()
        text = shlex.join(command)[:_SHOWN]
        # Not a pipe: a daemon that the command starts would keep it open.
        with tempfile.TemporaryFile() as output:
            try:
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=self._patience_s,
                    check=False,
                    start_new_session=True,
                ).returncode
            except OSError as error:
                raise InvalidSpec(f"{text} cannot be run: {error.strerror}") from error
            except subprocess.TimeoutExpired as error:
                raise GaveUp(f"{text} did not end within {self._patience_s:.0f} s") from error
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines()
        if code != 0:
            words = f": {lines[-1][:_SHOWN]}" if lines else ""
            raise InvalidSpec(f"{text} ended with code {code}{words}")
        return Injection(at_ms, self._since(_now_ms()), driver=text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
