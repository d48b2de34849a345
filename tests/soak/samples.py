"""Memory and threads of one driver, over the time of a soak."""

import csv
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

import psutil
from support.threads import CLIENT, threads_named

EVERY_S = 2.0
_LOOKS = 10


@dataclass(frozen=True)
class Sample:
    """Measurements of one moment."""

    at_s: float
    """Monotonic seconds."""
    rss: int
    """Resident bytes."""
    threads: int
    clients: int
    """Clients of librdkafka: each has a thread of its own, and one for each broker."""
    units: str
    """Types of its units: each type needs clients, with threads and buffers of their own."""


@dataclass(frozen=True)
class AtRest:
    """Resources of all drivers together while the flow is idle and free of errors.

    Each task needs clients, and a starting task needs more of them for a moment. Only idle flows
    can be compared.
    """

    clients: int
    """The lowest of several samples."""
    threads: int


def at_rest(drivers: Sequence[psutil.Process]) -> AtRest:
    """Measure for some seconds, because an unused client needs some time to end."""
    looks = []
    for _ in range(_LOOKS):
        time.sleep(EVERY_S)
        with suppress(psutil.NoSuchProcess):
            clients = sum(len(threads_named(CLIENT, driver.pid)) for driver in drivers)
            looks.append(AtRest(clients, sum(driver.num_threads() for driver in drivers)))
    return min(looks, key=lambda look: (look.clients, look.threads))


class Sampler:
    """Takes samples of a process until ``stop``."""

    def __init__(self, process: psutil.Process, units: Callable[[], str]) -> None:
        """Sample a process; ``units`` returns the types of its present units."""
        self._process, self._units = process, units
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
            if units := self._units():  # empty if the run did not answer
                self.samples.append(Sample(time.monotonic(), memory, threads, clients, units))

    def save(self, file: Path) -> None:
        """Write all samples as CSV."""
        with file.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow([field.name for field in fields(Sample)])
            writer.writerows(map(astuple, self.samples))


def memory_of_thirds(samples: Sequence[Sample]) -> list[float]:
    """Return the median memory, in bytes, of the middle and of the last third of the time.

    Only samples with the same types of units are compared. In the first third the driver grows to
    its size. The result is empty if the driver had no units that it had in both thirds.
    """
    if not samples:
        return []
    began, ended = samples[0].at_s, samples[-1].at_s
    size_s = (ended - began) / 3
    middle = [s for s in samples if began + size_s <= s.at_s < began + 2 * size_s]
    last = [s for s in samples if s.at_s >= began + 2 * size_s]
    often = [Counter(sample.units for sample in part) for part in (middle, last)]
    usual = max(often[0] | often[1], key=lambda units: min(one[units] for one in often))
    alike = [[sample.rss for sample in part if sample.units == usual] for part in (middle, last)]
    return [median(part) for part in alike] if all(alike) else []
