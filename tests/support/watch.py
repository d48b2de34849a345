"""Times at which records arrive."""

import threading
import time
from itertools import pairwise

from headrace.api import ClusterAccess
from headrace.api.partitions import TopicPartition
from headrace.kafka import Admin, Position, assign, make_consumer


class Watch:
    """Notes when records become visible on the target, by partition."""

    def __init__(self, cluster: ClusterAccess, topic: str, partitions: int) -> None:
        self._consumer = make_consumer(cluster)
        watched = [TopicPartition(topic, number) for number in range(partitions)]
        assign(self._consumer, Admin(cluster).offsets(watched, Position.LATEST).items())
        self._arrivals: dict[int, list[float]] = {number: [] for number in range(partitions)}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                self._arrivals[message.partition() or 0].append(time.monotonic())

    def longest_silences(self, since: float) -> dict[int, float]:
        """Return the longest time without a record after a time, by partition."""
        now = time.monotonic()
        longest = {}
        for partition, arrivals in self._arrivals.items():
            times = [since, *(at for at in arrivals if at >= since), now]
            longest[partition] = max(b - a for a, b in pairwise(times))
        return longest
