"""Threads that draw faults from decks until the time is over.

Each has its own random numbers, from the seed: its faults depend on nothing else. A deck is used up
before it is shuffled again, so that a run of some minutes contains all of its faults.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence

from soak.faults import FaultKind

RECOVERY_S = 45.0
"""Faults on faults, for ever, would only show that nothing is copied then."""

Inflict = Callable[[random.Random, threading.Event], None]
"""Function that injects a fault, waits, and repairs it; at once if the event is set."""


class Hazard:
    """A thread that injects one fault at a time."""

    def __init__(
        self,
        name: str,
        seed: int,
        deck: Sequence[tuple[FaultKind, Inflict]],
        pause_s: tuple[float, float],
        recovered: Callable[[], bool],
    ) -> None:
        """Prepare the thread.

        ``pause_s`` is the least and the most time between two faults. ``recovered`` is whether the
        affected cluster or driver works again. The thread waits for that for a limited time.
        """
        self._recovered = recovered
        self._random = random.Random(f"{seed} {name}")
        self._name, self._deck, self._pause_s = name, deck, pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.problem = ""
        """A sentence when a fault could not be inflicted or put right."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Repair the present fault; ``join`` waits for that."""
        self._stop.set()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def _await_recovery(self) -> bool:
        """Return whether to continue: not if the time is over."""
        deadline = time.monotonic() + RECOVERY_S
        while not self._recovered() and time.monotonic() < deadline:
            if self._stop.wait(1):
                return False
        return not self._stop.is_set()

    def _run(self) -> None:
        drawn: str = "its start"
        try:
            while True:
                deck = list(self._deck)
                self._random.shuffle(deck)
                for kind, inflict in deck:
                    pause_s = self._random.uniform(*self._pause_s)
                    if self._stop.wait(pause_s) or not self._await_recovery():
                        return
                    drawn = kind
                    inflict(random.Random(self._random.random()), self._stop)
        except Exception as error:  # noqa: BLE001 - a thread's errors are told by the verdict
            self.problem = f"{self._name} stopped at {drawn}: {error!r}"
