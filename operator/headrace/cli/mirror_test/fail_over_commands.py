"""The commands by which a rehearsal fails its flow over and undoes that, as a person types them."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from headrace.cli.screen.exits import Exit
from headrace.errors import GaveUp
from headrace.host import spawn
from headrace.mirror_test import Run

_QUIET_S = 2
_COMMAND_S = 600.0
"""Longer than the command itself waits, with its --timeout-seconds of 300."""

_NOTHING = "nothing is changed"
"""Say `headrace failover --abort` and `headrace resume` of a flow that is as they would make it."""


@dataclass(frozen=True)
class _Done:
    """A command that has ended."""

    code: int
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        lines = self.errors.strip().splitlines()
        if not lines:
            return f"a command ended with exit code {self.code}"
        return lines[-1].removeprefix("headrace: ")

    @property
    def found_nothing(self) -> bool:
        """To be done."""
        return self.code == Exit.USAGE and _NOTHING in self.errors


@dataclass(frozen=True)
class FailOverCommands:
    """Of one run's flow: on this machine, or in a cluster's ``namespace``."""

    run: Run
    namespace: str | None = None

    def fail_over(self) -> dict[str, Any]:
        """What `headrace failover` says; raises ``GaveUp`` with its last words when it fails."""
        done = self._headrace("failover", *self._secrets, "-o", "json", "--quiet-seconds", _QUIET_S)
        if done.code != Exit.OK:
            raise GaveUp(done.last_words)
        found: dict[str, Any] = json.loads(done.output)
        return found

    def undo(self) -> str | None:
        """The flow copies on, however far the fail-over came; why it does not."""
        try:
            done = self._headrace("failover", *self._secrets, "--abort")
            if done.found_nothing:
                # No switch was stored. The flow may have been stopped, or runs already.
                done = self._headrace("resume")
        except GaveUp as error:
            return str(error)
        return None if done.code == Exit.OK or done.found_nothing else done.last_words

    @property
    def _secrets(self) -> tuple[str, ...]:
        """A flow of this machine has a folder of its own; a pod without Secrets has none."""
        folder = self.run.secrets
        if self.namespace is None or folder is None or not folder.is_dir():
            return ()
        return ("--secrets", str(folder))

    def _headrace(self, verb: str, *options: object) -> _Done:
        """It ends with this process, in whatever way: else it could fail over behind an undo."""
        place = ("-n", self.namespace) if self.namespace else ()
        words = (verb, self.run.flow or "", *place, *options)
        process = spawn(
            [sys.executable, "-m", "headrace", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            output, errors = process.communicate(timeout=_COMMAND_S)
        except subprocess.TimeoutExpired as error:
            raise GaveUp(f"`headrace {verb}` did not end within {_COMMAND_S:.0f} s") from error
        finally:
            process.kill()
        return _Done(process.returncode, output.decode(), errors.decode())
