"""A load of transactions, and a recorder of a flow's reports, which run besides faults."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.flows import FlowRun, spec
from support.random_log import RandomLog, wire_client

from headrace.sandbox import SandboxCluster

_STOPPED = re.compile("`headrace flow rebuild`")
_COUNTS = (1, 1, 2, 10, 30)
"""Numbers of records in a batch. Each record of an aborted batch is a marker on the target."""


class Load:
    """Writes to topics of the source while its ``with`` block lasts: transactions, all codecs."""

    def __init__(
        self, source: SandboxCluster, topics: Sequence[str], seed: str, *, keys: int
    ) -> None:
        self._source, self._topics, self._seed, self._keys = source, topics, seed, keys
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: Exception | None = None

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed is not None and kind is None:
            raise self._failed

    def _run(self) -> None:
        try:
            with wire_client(spec(self._source)) as client:
                logs = [RandomLog(client, one, f"{self._seed} {one}") for one in self._topics]
                while not self._stop.wait(0.8):
                    for log in logs:
                        log.fill(2, keys=self._keys, counts=_COUNTS)
        except Exception as error:  # noqa: BLE001 - the test raises it
            self._failed = error


@dataclass
class Reports:
    """Reports of the flow: messages of stopped partitions, and losses."""

    run: FlowRun
    stops: set[str] = field(default_factory=set)
    losses: dict[str, dict[str, Any]] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        """Return the status, and record its messages and losses."""
        status = self.run.status()
        said = [one.get("message", "") for one in status.get("conditions", [])]
        for unit in status.get("units", []):
            said += [(unit.get("lastError") or {}).get("message", "")]
            said += [one.get("message", "") for one in unit.get("conditions", [])]
            for loss in unit.get("losses", []):
                self.losses[repr(sorted(loss.items()))] = loss
        self.stops |= {one for one in said if _STOPPED.search(one)}
        return status

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Record the reports until the block ends, including short-lived ones."""
        ended = threading.Event()

        def follow() -> None:
            while not ended.wait(0.5):
                self.read()

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
