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
"""Words that `headrace failover --abort` and `headrace flow resume` print if nothing changes."""


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
        """Whether there was nothing to change."""
        return self.code == Exit.OK and _NOTHING in self.output


@dataclass(frozen=True)
class FailOverCommands:
    """Of one run's flow: on this machine, or in a cluster's ``namespace``."""

    run: Run
    namespace: str | None = None

    def fail_over(self) -> dict[str, Any]:
        """Fail over, and return the document that `headrace failover` prints.

        Raises:
            GaveUp: The command failed; the message is its last error.
        """
        done = self._headrace("failover", *self._secrets, "-o", "json", "--quiet-seconds", _QUIET_S)
        if done.code != Exit.OK:
            raise GaveUp(done.last_words)
        found: dict[str, Any] = json.loads(done.output)
        return found

    def undo(self) -> str | None:
        """Let the flow copy again, however far the fail-over came; return why it does not."""
        try:
            done = self._headrace("failover", *self._secrets, "--abort")
            if done.found_nothing:
                # No switch was stored. The flow may have been stopped, or runs already.
                done = self._headrace("flow resume")
        except GaveUp as error:
            return str(error)
        return None if done.code == Exit.OK else done.last_words

    @property
    def _secrets(self) -> tuple[str, ...]:
        """A flow of this machine has a folder of its own; a pod without Secrets has none."""
        folder = self.run.secrets
        if self.namespace is None or folder is None or not folder.is_dir():
            return ()
        return ("--secrets", str(folder))

    def _headrace(self, verb: str, *options: object) -> _Done:
        """Run a command that ends with this process, so that it cannot act after an undo."""
        place = ("-n", self.namespace) if self.namespace else ()
        words = (*verb.split(), self.run.flow or "", *place, *options)
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
