"""Heartbeats: MirrorMaker 2's signs of life, by which MirrorClient tells who is upstream."""

import time
from functools import partial
from typing import Any

from headrace.api import ClusterAccess, TaskType
from headrace.connect.unit import Unit
from headrace.errors import Retriable
from headrace.kafka import (
    Admin,
    KafkaError,
    Message,
    Producer,
    Renewal,
    make_producer,
    translate,
)
from headrace.replication.heartbeats import Heartbeat
from headrace.replication.policies import HEARTBEATS


class HeartbeatConnector(Unit):
    """Writes the one heartbeat task, or none."""

    def restore(self) -> None:
        """Nothing to restore."""

    def turn(self) -> float:
        """Publish; there is nothing to watch."""
        wanted = {0: ()} if self.context.spec.heartbeats.enabled else {}
        self.herder.publish(self.hold.task, TaskType.HEARTBEAT_TASK, wanted, {})
        return 60.0


_SILENCE_S = 5.0
"""A target that acknowledges nothing for so long is away: a heartbeat never fails by the clock."""


class HeartbeatTask(Unit):
    """One record a second on the target and, for MirrorClient's ``upstreamClusters()``, on the
    source; there as if the reverse flow wrote it, as MirrorMaker 2's reverse herder does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._error: KafkaError | None = None
        self._beats: list[tuple[Producer, str, str]] = []
        self._sent_at: dict[str, float] = {}
        """When the heartbeat that is under way was sent, by the alias of where it goes."""
        self._renewal = Renewal()
        self.beats: dict[str, float] = {}
        """When the last one was acknowledged (Unix seconds), by the alias of where it went; before
        the first, when the task began."""
        self._began = time.time()

    def restore(self) -> None:
        """Make the topics and the producers."""
        self.close()
        spec = self.context.spec
        source, target = self.context.source_access, self.context.target_access
        sides: list[tuple[Admin, ClusterAccess, ClusterAccess]] = [
            (self.context.target, target, source)
        ]
        if spec.heartbeats.on_source:
            sides.append((self.context.source, source, target))
        self._renewal = Renewal(source, target)
        self.beats = {at.alias: self.beats.get(at.alias, self._began) for _, at, _ in sides}
        for admin, _, _ in sides:
            admin.create_topic(HEARTBEATS, 1, config={"cleanup.policy": "compact"})
        self._error = None
        self._sent_at.clear()
        self._beats = [(make_producer(at), of.alias, at.alias) for _, at, of in sides]

    def turn(self) -> float:
        """One heartbeat a side."""
        if self._renewal.due:
            self.restore()
        for producer, source, target in self._beats:
            heartbeat = Heartbeat(source, target, int(time.time() * 1000))
            producer.poll(0)
            if not len(producer):  # a broker that is away must not pile them up
                self._sent_at[target] = time.monotonic()
                producer.produce(
                    HEARTBEATS,
                    heartbeat.value(),
                    heartbeat.key(),
                    partition=0,
                    on_delivery=partial(self._delivered, target),
                )
            elif (waited_s := time.monotonic() - self._sent_at[target]) > _SILENCE_S:
                raise Retriable(
                    f"{target} did not acknowledge a heartbeat for {waited_s:.0f} s; "
                    "check that its brokers run"
                )
        if self._error is not None:
            raise translate(self._error, f"write heartbeats to topic {HEARTBEATS}")
        return float(self.context.spec.heartbeats.interval_seconds)

    def close(self) -> None:
        """Let the last one out."""
        for producer, _, _ in self._beats:
            producer.purge()
            producer.flush(1)

    def _delivered(self, target: str, error: KafkaError | None, _: Message) -> None:
        self._error = self._error or error
        if error is None:
            self.beats[target] = time.time()
