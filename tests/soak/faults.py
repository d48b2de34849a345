"""Faults of brokers and drivers, with their times."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """Kind of a fault."""

    BROKER_KILLED = "broker killed"
    BROKER_FROZEN = "broker frozen"
    CLUSTER_ROLLED = "cluster rolled"
    LEADERLESS = "partitions leaderless"
    TWO_BROKERS_KILLED = "two brokers killed"
    PROGRESS_LEADER_KILLED = "progress leader killed"
    DRIVER_KILLED = "driver killed"
    DRIVER_FROZEN = "driver frozen past its Lease"
    DRIVER_STALLED = "driver frozen within its Lease"
    PASSWORD_CHANGED = "password changed"
    CERTIFICATE_CHANGED = "certificate changed"
    BIT_FLIPPED = "bit flipped"
    FRAME_DELAYED = "frame delayed"
    CONNECTION_CUT = "connection cut in a frame"
    FRAME_DOUBLED = "frame sent twice"
    FRAMES_SWAPPED = "frames swapped"
    CONNECTION_SWALLOWED = "connection black-holed"
    BROKER_REPLACED = "broker replaced by a foreign one"


@dataclass(frozen=True)
class Fault:
    """A fault that has ended or lasts. Times are Unix seconds."""

    number: int
    """Counts from 1."""
    kind: FaultKind
    on: str
    """Target of the fault, for people."""
    began_s: float
    ended_s: float = float("inf")
    """Time of the repair: a broker answers again, or a driver is thawed."""
    driver: str = ""
    """Killed or frozen driver as ``<name>/<incarnation>``."""

    def __str__(self) -> str:
        return f"fault {self.number}, {self.kind} ({self.on})"

    def is_near(self, first_s: float, last_s: float, after_s: float = 15.0) -> bool:
        """Return whether it lasted between these times, or ended less than ``after_s`` before."""
        return self.began_s <= last_s and self.ended_s >= first_s - after_s


class FaultJournal:
    """All faults of a run. Thread-safe."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._faults: dict[int, Fault] = {}
        self._lock = threading.Lock()

    @property
    def faults(self) -> list[Fault]:
        """Return the faults in the order of their beginnings."""
        with self._lock:
            return list(self._faults.values())

    @contextmanager
    def fault(self, kind: FaultKind, on: str, driver: str = "") -> Iterator[None]:
        """Record a fault that lasts as long as the block."""
        with self._lock:
            number = len(self._faults) + 1
            self._faults[number] = Fault(number, kind, on, time.time(), driver=driver)
        self._say(f"{number:3}  {kind}: {on}")
        try:
            yield
        finally:
            began = self._faults[number]
            over = Fault(number, kind, on, began.began_s, time.time(), driver)
            with self._lock:
                self._faults[number] = over
            self._say(f"{number:3}  over after {over.ended_s - over.began_s:.1f} s")
