"""A shell with HOME and PATH and no other variable, for commands as the pages print them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.patience import WITHIN_S

from headrace.host import cache_home, spawn

ROOT = Path(__file__).parents[2]
VENV = Path(sys.executable).parents[1]


class PlainShell:
    """Shell in a folder of its own, which has the environment and the folders of a clone.

    Only the cache of headrace is the user's, because its programs take minutes to build.
    """

    def __init__(self, folder: Path, *, runtime: str = "", **programs: str) -> None:
        """Prepare the shell.

        Args:
            folder: Its home and its working folder are below.
            runtime: ``XDG_RUNTIME_DIR`` of a flow whose name a page prescribes, so that it differs
                from the flows of other shells.
            programs: Commands on its PATH beside those of headrace, with the words that run them.
        """
        self.folder, home, here = folder / "clone", folder / "home", folder / "bin"
        for new in (self.folder, home / ".cache", here):
            new.mkdir(parents=True)
        (home / ".cache" / "headrace").symlink_to(cache_home())
        for name, words in programs.items():
            (here / name).write_text(f'#!/bin/bash\nexec {words} "$@"\n')
            (here / name).chmod(0o755)
        for name in ("headrace", "kubectl-headrace"):
            (here / name).symlink_to(VENV / "bin" / name)
        for name in ("charts", "spark-jobs"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / ".venv").symlink_to(VENV)
        self.home = home
        self._environment = {"HOME": str(home), "PATH": f"{here}:/usr/bin:/bin"}
        if runtime:
            self._environment["XDG_RUNTIME_DIR"] = runtime

    def run(self, script: str) -> str:
        """Run a script until its first error, and return its output."""
        output = self.folder / "output.log"
        output.unlink(missing_ok=True)
        with self._started(["bash", "-e", "-c", script], output) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(WITHIN_S)
            code = process.poll()
        text = output.read_text()
        assert code == 0, f"{script}: exit code {code} (None after {WITHIN_S:.0f} s)\n{text}"
        return text

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Run a command in the background, and end it in order after the block."""
        output = self.folder / "background.log"
        with self._started(["bash", "-c", f"exec {command}"], output) as process:
            yield
            process.terminate()
            code = process.wait(WITHIN_S)
            assert code == 0, f"{command}: exit code {code}\n{output.read_text()}"

    @contextmanager
    def _started(self, words: list[str], output: Path) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a process, and kill it and its children after the block."""
        with output.open("ab") as log:
            process = spawn(words, cwd=self.folder, env=self._environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
