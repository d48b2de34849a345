"""Recovery time of each fault."""

import time
from collections.abc import Callable

from cluster.kubectl import KubectlError
from rich.console import Console
from rich.table import Table

POLL_INTERVAL_S = 0.3
PATIENCE_S = 300.0
"""Longest wait for a recovery.

A container that crashed for the fourth time waits for 80 s, and informers of Kubernetes' own parts
back off for up to 30 s.
"""


class Recoveries:
    """Measures, one after the other."""

    def __init__(self, explain: Callable[[], str]) -> None:
        """Measure recoveries; ``explain`` returns the state for a failure's message."""
        self._explain = explain
        self._took_s: dict[str, float] = {}
        self.verdict = "no verdict"
        """Verdict, in words, of the mirror test that spans all faults."""

    def measure(self, fault: str, recovered: Callable[[], bool]) -> None:
        """Wait for recovery, and record its time.

        An error of the API server counts as not recovered.
        """
        began, refused = time.monotonic(), "nothing"
        while True:
            try:
                if recovered():
                    break
            except KubectlError as error:
                refused = str(error)
            took_s = time.monotonic() - began
            assert took_s < PATIENCE_S, (
                f"{fault}: no recovery in {took_s:.0f} s\n"
                f"kubectl was refused last: {refused}\n{self._explain()}"
            )
            time.sleep(POLL_INTERVAL_S)
        self._took_s[fault] = time.monotonic() - began

    def add(self, fault: str, took_s: float) -> None:
        """Record a recovery that another party measured."""
        self._took_s[fault] = took_s

    def show(self, console: Console) -> None:
        """Print the times as a table."""
        table = Table(
            "fault", "recovered after, s", title="Recovery from each fault", caption=self.verdict
        )
        table.columns[1].justify = "right"
        for fault, took_s in self._took_s.items():
            table.add_row(fault, f"{took_s:.1f}")
        console.print(table)
