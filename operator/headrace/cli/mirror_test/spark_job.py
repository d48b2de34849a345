"""Spark job of a mirror test, as a child process that ends with this process."""

import importlib.util
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.errors import Fatal
from headrace.host import spawn
from headrace.mirror_test import HEAP_MIB, JAVA_OPTIONS, Stage, local_slots
from headrace.toolchain import JarSet, find_java, jars

Event = dict[str, Any]


class SparkJob:
    """Process of one stage, in Spark's local mode.

    Its output, except its events, is written to ``<folder>/<name>.log``. Its exit code is ignored,
    because only ``report.json`` contains the verdict.
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
        """True if the process still runs."""
        return self._process.poll() is None

    def events(self, wait_s: float) -> Iterator[Event]:
        """Yield the events since the last call. Wait at most ``wait_s`` for the first event."""
        try:
            yield self._events.get(timeout=wait_s)
            while True:
                yield self._events.get_nowait()
        except queue.Empty:
            return

    def last_words(self) -> str:
        """Return the last message of the process, and the path of its log."""
        sentences = [
            line.removeprefix("headrace: ")
            for line in self.log.read_text(errors="replace").splitlines()
            if line.startswith("headrace: ")
        ]
        words = sentences[-1] if sentences else _ended(self._process.poll())
        return f"{self.name}: {words} (log: {self.log})"

    def end(self) -> None:
        """End the process. Its JVM and Python workers then end as well."""
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
    """Return the script of a job.

    A wheel has it in ``headrace_spark/jobs/``, and a clone next to the package.
    """
    found = importlib.util.find_spec("headrace_spark")
    if found is None or found.origin is None:
        raise Fatal("the Spark jobs are not installed: pip install 'headrace[spark]'")
    package = Path(found.origin).parent
    wheel = package / "jobs" / f"{name}.py"
    return wheel if wheel.exists() else package.parent / f"{name}.py"


def environment(stage: Stage, slots: int, folder: Path) -> dict[str, str]:
    """Return the environment of a process that starts a stage's Spark.

    It uses the PySpark of this Python and matching jars, whatever else is installed.
    """
    java = find_java()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "scratch"),
    }
    arguments = [
        *("--master", f"local[{slots}]"),
        *("--driver-memory", f"{HEAP_MIB[stage]}m"),
        *("--driver-java-options", JAVA_OPTIONS[stage]),
        *("--jars", ",".join(map(str, jars(JarSet.SPARK_KAFKA, java)))),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]
    others = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return others | {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join(arguments),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
