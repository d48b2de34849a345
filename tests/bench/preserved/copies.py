"""A flow with ``offsets.mode: Preserved``, and how far its copies are."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from bench.mirror.subjects import ending, started

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import Admin, Position

START_S = 60.0
_POLL_S = 0.1


def reached(servers: str, alias: str) -> ClusterAccess:
    """Return the access to the cluster behind these bootstrap servers."""
    return ClusterAccess(ClusterSpec(alias=alias, bootstrap_servers=servers))


@contextmanager
def copying(
    folder: Path, alias: str, source: str, target: str, topic: str, **more: Any
) -> Iterator[psutil.Process]:
    """Run a flow whose copy is named ``ALIAS.TOPIC``.

    ``source`` and ``target`` are bootstrap servers, ``more`` further fields of the spec.
    """
    spec = {
        "source": {"alias": alias, "bootstrapServers": source},
        "target": {"alias": "west", "bootstrapServers": target},
        "offsets": {"mode": "Preserved"},
        "tasks": {"max": 1},  # partitions of one task share the transactions of their holes
        "topics": {"include": [topic]},
        **more,
    }
    with ending(started(alias, spec, folder)) as process:
        yield process


class Ends:
    """The sum of the end offsets of a topic's partitions."""

    def __init__(self, cluster: ClusterAccess, topic: str, partitions: int) -> None:
        self._admin, self._topic = Admin(cluster), topic
        self._ats = [TopicPartition(topic, number) for number in range(partitions)]

    def __call__(self) -> int:
        """Return the sum of the last stable offsets, or 0 if the topic does not exist."""
        try:
            return sum(self._admin.offsets(self._ats, Position.LAST_STABLE).values())
        except HeadraceError:
            return 0

    def wait(self, least: int, within_s: float) -> float:
        """Wait until they reach this sum, and return the monotonic time of that moment."""
        deadline_s = time.monotonic() + within_s
        while (found := self()) < least:
            if time.monotonic() > deadline_s:
                raise GaveUp(
                    f"{self._topic} ends at {found:,} instead of {least:,} after {within_s:.0f} s"
                )
            time.sleep(_POLL_S)
        return time.monotonic()
