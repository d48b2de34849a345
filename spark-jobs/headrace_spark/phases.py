"""How long the parts of a job take: in its log, and in the report."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.mirror_test import Phase


class Phases:
    """The phases that have ended."""

    def __init__(self) -> None:
        self._ended: list[Phase] = []

    @property
    def ended(self) -> tuple[Phase, ...]:
        """In the order in which they ended."""
        return tuple(self._ended)

    def add(self, name: str, seconds: float) -> None:
        """One that was timed elsewhere."""
        phase = Phase(name=name, seconds=round(max(0.0, seconds), 2))
        self._ended.append(phase)
        sys.stderr.write(f"phase: {phase.name} took {phase.seconds:.2f} s\n")

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a block."""
        started_s = time.monotonic()
        yield
        self.add(name, time.monotonic() - started_s)
