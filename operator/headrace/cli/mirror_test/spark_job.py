"""Spark job of a mirror test, as a child process that ends with this process."""

import importlib.util
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace import logs
from headrace.errors import Fatal
from headrace.host import spawn
from headrace.mirror_test import HEAP_MIB, JAVA_OPTIONS, Stage, local_slots
from headrace.toolchain.spark import local_spark

Event = dict[str, Any]


class SparkJob:
    """Process of one stage, in Spark's local mode.

    Its output, except its events, goes to ``<folder>/<name>.log``. Its exit code says nothing about
    the mirror: only ``report.json`` does.
    """

    def __init__(self, stage: Stage, producers: int, folder: Path, *arguments: str) -> None:
        self.name = name = stage.value
        self.log = folder / f"{name}.log"
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        with self.log.open("ab") as log:  # the reader below also appends
            self._process = spawn(
                [sys.executable, _script(name), *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(stage, local_slots(stage, producers), folder),
            )
        self._reader = threading.Thread(target=self._read, name=f"{name} events")
        self._reader.start()

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def events(self, wait_s: float) -> Iterator[Event]:
        """Yield the events since the last call. Wait at most ``wait_s`` for the first event."""
        try:
            yield self._events.get(timeout=wait_s)
            while True:
                yield self._events.get_nowait()
        except queue.Empty:
            return

    def last_log_error(self) -> str:
        """Return the last message of the process, and the path of its log."""
        sentences = logs.messages_in(self.log.read_text(errors="replace"))
        words = sentences[-1] if sentences else _ended(self._process.poll())
        return f"{self.name}: {words} (log: {self.log})"

    def end(self) -> None:
        """End the process and wait for it. Its JVM and Python workers end with it."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with self.log.open("ab") as log, stdout:
            for line in stdout:
                if line.startswith(b'{"event"'):
                    self._events.put(json.loads(line))
                else:
                    log.write(line)
                    log.flush()


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"it was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"it ended with code {code}"


def _script(name: str) -> Path:
    """Return the path of a script.

    It is in ``headrace_spark/jobs/`` of the wheel, or next to the package in a clone.
    """
    found = importlib.util.find_spec("headrace_spark")
    if found is None or found.origin is None:
        raise Fatal(
            "the Spark jobs are not installed: install headrace again with its extra `spark`"
        )
    package = Path(found.origin).parent
    wheel = package / "jobs" / f"{name}.py"
    return wheel if wheel.exists() else package.parent / f"{name}.py"


def environment(stage: Stage, slots: int, folder: Path) -> dict[str, str]:
    """Return the environment of a process that starts Spark for a stage."""
    return local_spark(slots, HEAP_MIB[stage], JAVA_OPTIONS[stage], folder / "scratch")
