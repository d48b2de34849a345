"""Heartbeats: MirrorMaker 2's heartbeats, by which MirrorClient finds upstream clusters."""

from math import inf
from typing import Any

from headrace.api import HEARTBEATS, ClusterAccess, TaskType
from headrace.clock import Clock
from headrace.connect.threaded_unit import ThreadedUnit
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import (
    Admin,
    KafkaError,
    Message,
    Producer,
    Renewal,
    make_producer,
    translate,
)
from headrace.replication import Heartbeat


class HeartbeatConnector(ThreadedUnit):
    """Writes the one heartbeat task, or none."""

    def restore(self) -> None:
        """Nothing to restore."""

    def run_once(self) -> float:
        """Write the task; there is nothing to poll."""
        wanted = {0: ()} if self.context.spec.heartbeats.enabled else {}
        self.herder.put_tasks(self.ownership.task, TaskType.HEARTBEAT_TASK, wanted, {})
        return 60.0


_SILENCE_S = 5.0
"""A cluster that acknowledges nothing for so long is away: a heartbeat never fails by the clock."""


class HeartbeatTask(ThreadedUnit):
    """One record a second on the target and, for MirrorClient's ``upstreamClusters()``, on the
    source; there as if the reverse flow wrote it, as MirrorMaker 2's reverse herder does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        context = self.context
        source, target = context.source_access, context.target_access
        self._renewal = Renewal(source, target)
        self._sides = [_Side(context.target, target, source.alias, self.clock)]
        self._follow_spec()

    @property
    def beats(self) -> dict[str, float]:
        """When the last one was acknowledged (Unix seconds), by the alias of where it went; before
        the first, when the task began."""
        return {side.alias: side.beat_at for side in self._sides}

    def restore(self) -> None:
        """Create missing topics and producers, and send heartbeats where that worked."""
        self._beat()

    def run_once(self) -> float:
        """One heartbeat a side."""
        self._beat()
        return float(self.context.spec.heartbeats.interval_seconds)

    def close(self) -> None:
        """Free the producers; the last heartbeat may still go out."""
        for side in self._sides:
            side.close()

    def _follow_spec(self) -> None:
        """Begin with the source, or leave it, as the flow's spec has it now."""
        context, (target, *source) = self.context, self._sides
        if context.spec.heartbeats.on_source and not source:
            at, of = context.source_access, context.target_access.alias
            self._sides = [target, _Side(context.source, at, of, self.clock)]
        elif source and not context.spec.heartbeats.on_source:
            self._sides = [target]
            source[0].close()

    def _beat(self) -> None:
        """On every side, also after another one failed; then raise what failed, what cannot be
        retried first."""
        self._follow_spec()
        if self._renewal.due:
            self.close()
            self._renewal = Renewal(self.context.source_access, self.context.target_access)
        failed: list[HeadraceError] = []
        for side in self._sides:
            try:
                side.beat(self.context.spec.heartbeats.interval_seconds)
            except HeadraceError as error:
                failed.append(error)
        if failed:
            raise min(failed, key=lambda error: isinstance(error, Retriable))


class _Side:
    """A cluster that heartbeats go to."""

    def __init__(self, admin: Admin, cluster: ClusterAccess, source: str, clock: Clock) -> None:
        """``source``: the alias of the cluster that they speak of."""
        self.alias = cluster.alias
        self.beat_at = clock.time()
        self._clock = clock
        self._admin, self._cluster, self._source = admin, cluster, source
        self._producer: Producer | None = None
        self._sent_s = -inf
        self._error: KafkaError | None = None

    def beat(self, every_s: float) -> None:
        """Send one if it is due; raises the error of the last one, or of preparing for one."""
        if self._producer is None:
            self._admin.create_topic(HEARTBEATS, 1, config={"cleanup.policy": "compact"})
            self._producer = make_producer(self._cluster)
        self._producer.poll(0)
        if (error := self._error) is not None:
            self.close()
            raise translate(error, f"write heartbeats to topic {HEARTBEATS}")
        waited_s = self._clock.monotonic() - self._sent_s
        if len(self._producer):  # a broker that is away must not pile them up
            if waited_s > _SILENCE_S:
                raise Retriable(
                    f"{self.alias} did not acknowledge a heartbeat for {_SILENCE_S:.0f} s; "
                    "check that its brokers run"
                )
        elif waited_s >= every_s:
            self._send(self._producer)

    def close(self) -> None:
        """Free the producer."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1)
        self._producer = self._error = None

    def _send(self, producer: Producer) -> None:
        heartbeat = Heartbeat(self._source, self.alias, int(self._clock.time() * 1000))
        self._sent_s = self._clock.monotonic()
        producer.produce(
            HEARTBEATS,
            heartbeat.value(),
            heartbeat.key(),
            partition=0,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._error = error
        if error is None:
            self.beat_at = self._clock.time()
