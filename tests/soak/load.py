"""The load: numbered records, and which of them the source has acknowledged."""

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from support.flows import spec
from support.records import LINGER

from headrace.kafka import KafkaError, Message, make_producer
from headrace.sandbox import SandboxCluster

_VALUE_BYTES = 200
_FLUSH_S = 90
_QUEUED_MOST = 50_000


class NumberedLoad:
    """Writes to all partitions in turn, some a second, until ``stop``.

    The value of a record begins with its number in its partition.
    """

    def __init__(
        self, cluster: SandboxCluster, topics: Mapping[str, int], per_second: int, log: Path
    ) -> None:
        """Prepare a load; the client logs connections and sequence numbers to ``log``."""
        self._log = logging.getLogger("soak.load")
        self._log.propagate = False
        self._log.setLevel(logging.DEBUG)
        self._log.addHandler(logging.FileHandler(log))
        self._cluster, self._per_second = cluster, per_second
        self._partitions = [(name, n) for name, count in topics.items() for n in range(count)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.sent: Counter[tuple[str, int]] = Counter()
        self.acknowledged: Counter[tuple[str, int]] = Counter()
        """Records that the source must have, by topic and partition: numbers from 0 on."""
        self.problem = ""
        """A sentence when the source refused some: a soak without its load says nothing."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, and wait until all records are acknowledged."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - a thread's errors are told by the verdict
            self.problem = f"the load ended: {error!r}"

    def _write(self) -> None:
        producer = make_producer(
            spec(self._cluster), {**LINGER, "debug": "eos", "logger": self._log}
        )
        turns = itertools.cycle(self._partitions)
        began, due = time.monotonic(), 0
        while not self._stop.wait(0.02):
            producer.poll(0)
            if len(producer) > _QUEUED_MOST:
                continue
            wanted = int((time.monotonic() - began) * self._per_second)
            for topic, partition in itertools.islice(turns, wanted - due):
                number = self.sent[topic, partition]
                producer.produce(
                    topic,
                    b"%d " % number + b"." * _VALUE_BYTES,
                    b"%d" % number,
                    partition,
                    on_delivery=partial(self._delivered, (topic, partition)),
                )
                self.sent[topic, partition] += 1
            due = wanted
        left = len(producer)
        while left and (after := producer.flush(_FLUSH_S)) < left:
            left = after
        if left:
            self.problem = f"the source acknowledged none of {left} records within {_FLUSH_S} s"

    def _delivered(self, at: tuple[str, int], error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.problem = f"the source refused a record of {at[0]}-{at[1]}: {error.str()}"
        else:
            self.acknowledged[at] += 1
