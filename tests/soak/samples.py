"""Memory and threads of one driver, over the time of a soak."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import psutil

EVERY_S = 2.0


@dataclass(frozen=True)
class Sample:
    """Of one moment."""

    at_s: float
    """Monotonic seconds."""
    rss: int
    """Bytes resident."""
    threads: int


@dataclass(frozen=True)
class Third:
    """Medians of a third of the time."""

    rss: float
    threads: float


class Sampler:
    """Takes samples of a process until ``stop``."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
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
            except psutil.NoSuchProcess:
                return
            self.samples.append(Sample(time.monotonic(), memory, threads))


def thirds(samples: Sequence[Sample]) -> list[Third]:
    """The three thirds of the time; fewer when there is a third without samples."""
    if not samples:
        return []
    began, ended = samples[0].at_s, samples[-1].at_s
    size_s = (ended - began) / 3 or 1.0
    parts: list[list[Sample]] = [[], [], []]
    for sample in samples:
        parts[min(2, int((sample.at_s - began) / size_s))].append(sample)
    return [
        Third(median(s.rss for s in part), median(s.threads for s in part))
        for part in parts
        if part
    ]
