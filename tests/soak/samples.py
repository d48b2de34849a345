"""Memory and threads of one driver, over the time of a soak."""

import csv
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

import psutil
from support.threads import CLIENT, threads_named

EVERY_S = 2.0


@dataclass(frozen=True)
class Sample:
    """Of one moment."""

    at_s: float
    """Monotonic seconds."""
    rss: int
    """Bytes resident."""
    threads: int
    clients: int
    """Of librdkafka: each has a thread of this name, and one for each broker."""
    tasks: int
    """Source tasks that it has: each takes clients, with threads and buffers of their own."""


@dataclass(frozen=True)
class Third:
    """Of a third of the time, while it has as many tasks as in the others."""

    rss: float
    """Median."""
    threads: int
    """The fewest: there are more while a client finds its brokers; one that is never freed always
    counts."""


class Sampler:
    """Takes samples of a process until ``stop``."""

    def __init__(self, process: psutil.Process, tasks: Callable[[], int]) -> None:
        """``tasks`` are those that it has at the moment."""
        self._process, self._tasks = process, tasks
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self.samples: list[Sample] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                with self._process.oneshot():
                    memory, threads = self._process.memory_info().rss, self._process.num_threads()
                clients = len(threads_named(CLIENT, self._process.pid))
            except psutil.NoSuchProcess:
                return
            if tasks := self._tasks():  # else the run did not answer
                self.samples.append(Sample(time.monotonic(), memory, threads, clients, tasks))

    def save(self, file: Path) -> None:
        """Write all samples as CSV."""
        with file.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow([field.name for field in fields(Sample)])
            writer.writerows(map(astuple, self.samples))


def thirds(samples: Sequence[Sample]) -> list[Third]:
    """The three thirds of the time; fewer when the driver had no number of tasks in all three."""
    if not samples:
        return []
    began, ended = samples[0].at_s, samples[-1].at_s
    size_s = (ended - began) / 3 or 1.0
    parts: list[list[Sample]] = [[], [], []]
    for sample in samples:
        parts[min(2, int((sample.at_s - began) / size_s))].append(sample)
    often = [Counter(sample.tasks for sample in part) for part in parts]
    usual = max({s.tasks for s in samples}, key=lambda tasks: min(one[tasks] for one in often))
    alike = [[sample for sample in part if sample.tasks == usual] for part in parts]
    return [
        Third(median(s.rss for s in part), min(s.threads for s in part)) for part in alike if part
    ]
