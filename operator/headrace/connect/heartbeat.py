"""Heartbeats in MirrorMaker 2's format, with which MirrorClient finds upstream clusters."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from math import inf
from typing import Any

from headrace.api import (
    HEARTBEATS,
    MAX_MESSAGE_LENGTH,
    ClusterAccess,
    ConditionStatus,
    Reason,
    TaskType,
)
from headrace.connect.runtime.herder import EpochAltered
from headrace.connect.runtime.threaded_unit import ThreadedUnit, succeeds
from headrace.datapath import Clients
from headrace.errors import HeadraceError, Retriable
from headrace.kafka import (
    AccessDenied,
    Admin,
    KafkaError,
    RecordProducer,
    Renewal,
    translate,
)
from headrace.replication import Heartbeat
from headrace.timing import Backoff, Clock


class HeartbeatConnector(ThreadedUnit):
    """Connector that publishes one heartbeat task, or none."""

    def restore(self) -> None:
        """Do nothing: the connector has no state to restore."""

    def has_remedy(self, error: HeadraceError) -> Callable[[], bool] | None:
        """After ``EpochAltered``, return a function that publishes again. Otherwise return None."""
        return partial(succeeds, self._publish) if isinstance(error, EpochAltered) else None

    def run_once(self) -> float:
        """Publish the task. There is nothing to poll."""
        self._publish()
        return 60.0

    def _publish(self) -> None:
        wanted = {0: ()} if self.context.spec.heartbeats.enabled else {}
        self.herder.put_tasks(self.ownership.task, TaskType.HEARTBEAT_TASK, wanted, {})


_UNREACHABLE_AFTER_S = 5.0
"""Time in seconds without an acknowledgement after which a cluster counts as unreachable.
Heartbeats have no timeout of their own."""
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.2, 5.0


class HeartbeatTask(ThreadedUnit):
    """Task that writes a heartbeat to the target, and to the source if ``onSource`` is set.

    The record on the source serves MirrorClient's ``upstreamClusters()``. It describes the reverse
    flow, as in MirrorMaker 2. A side that fails is reported and retries. The task fails when all
    sides fail.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        context = self.context
        source, target = context.source_access, context.target_access
        self._sides = [_Side(context.target, target, source.alias, context.clients, self.clock)]
        self._reported: HeadraceError | None = None
        self.grace_period_s = 0.5
        """Time that each call waits for its heartbeats, so that it reports most errors in the same
        call."""
        self._follow_spec()

    @property
    def beats(self) -> dict[str, float]:
        """Return the Unix time of the last acknowledged heartbeat, by the alias of its cluster.

        Before the first heartbeat it is the task's start time.
        """
        return {side.alias: side.beat_at for side in self._sides}

    def restore(self) -> None:
        """Create missing topics and producers, and send the first heartbeats."""
        self._beat()

    def run_once(self) -> float:
        """Send heartbeats that are due, and return the interval in seconds."""
        self._beat()
        return float(self.context.spec.heartbeats.interval_seconds)

    def close(self) -> None:
        """Close the producers. Queued heartbeats may still be sent."""
        for side in self._sides:
            side.close()

    def _follow_spec(self) -> None:
        """Add or remove the source side, as the current spec requires."""
        context, (target, *source) = self.context, self._sides
        if context.spec.heartbeats.on_source and not source:
            at, of = context.source_access, context.target_access.alias
            side = _Side(context.source, at, of, context.clients, self.clock)
            self._sides = [target, side]
        elif source and not context.spec.heartbeats.on_source:
            self._sides = [target]
            source[0].close()

    def _beat(self) -> None:
        """Send heartbeats on every side.

        Raise an error only if all sides have failed. A ``Fatal`` error is preferred.
        """
        self._follow_spec()
        interval_s = self.context.spec.heartbeats.interval_seconds
        wait([side.beat(interval_s) for side in self._sides], self.grace_period_s)
        errors = [error for side in self._sides if (error := side.error) is not None]
        worst = min(errors, key=lambda error: isinstance(error, Retriable), default=None)
        if worst is not None and len(errors) == len(self._sides):
            raise worst
        self.problem = Retriable(str(worst)) if worst is not None else None
        self._report(worst if not isinstance(worst, Retriable) else None)

    def _report(self, fatal: HeadraceError | None) -> None:
        """Report an error of one side that a user must fix, while the other side continues."""
        if fatal is self._reported:
            return
        self._reported = fatal
        if fatal is None:
            self.observe(conditions=())
        else:
            reason = fatal.reason if isinstance(fatal, AccessDenied) else Reason.TASK_FAILED
            self.report_ready(ConditionStatus.FALSE, reason, str(fatal)[:MAX_MESSAGE_LENGTH])


class _Side:
    """Cluster that receives heartbeats.

    It has its own thread, which waits for unreachable brokers. ``beat`` and ``close`` may be called
    from one other thread.
    """

    def __init__(
        self, admin: Admin, cluster: ClusterAccess, source: str, clients: Clients, clock: Clock
    ) -> None:
        """Create a side; ``source`` is the alias of the cluster that the heartbeats describe."""
        self.alias = cluster.alias
        self.beat_at = clock.time()
        self.error: HeadraceError | None = None
        """Error of the last attempt, until a heartbeat is acknowledged."""
        self._clients, self._clock = clients, clock
        self._admin, self._cluster, self._source = admin, cluster, source
        self._renewal = Renewal(cluster)
        self._producer: RecordProducer | None = None
        self._sent_s = -inf
        self._refused: KafkaError | None = None
        self._backoff = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S)
        self._not_before_s = -inf
        self._thread = ThreadPoolExecutor(1, f"heartbeats-{self.alias}")
        self._attempt: Future[None] | None = None

    def beat(self, every_s: float) -> Future[None]:
        """Start an attempt to send a due heartbeat, unless one is running.

        The outcome is in ``error``.
        """
        if self._attempt is None or self._attempt.done():
            self._attempt = self._thread.submit(self._try, every_s)
        return self._attempt

    def close(self) -> None:
        """Close the producer after the current attempt."""
        self._thread.submit(self._free)
        self._thread.shutdown(wait=False)

    def _try(self, every_s: float) -> None:
        if self._clock.monotonic() < self._not_before_s:
            return
        try:
            self._beat(every_s)
        except HeadraceError as error:
            self._failed(error)

    def _failed(self, error: HeadraceError) -> None:
        self.error = error
        self._not_before_s = self._clock.monotonic() + self._backoff.next_s()

    def _beat(self, every_s: float) -> None:
        """Send a heartbeat if it is due; raise the error of the last one, or of the preparation."""
        if self._renewal.due:
            self._free()
            self._renewal = Renewal(self._cluster)
        if self._producer is None:
            producer = self._clients.producer(self._cluster)
            if not self._admin.describe([HEARTBEATS]):  # create only a missing topic
                self._admin.create_topic(HEARTBEATS, 1, config={"cleanup.policy": "compact"})
            self._producer = producer
        self._producer.poll(0)
        if (refused := self._refused) is not None:
            self._free()
            raise translate(refused, self._tried)
        waited_s = self._clock.monotonic() - self._sent_s
        if len(self._producer):  # heartbeats must not pile up while a broker is unreachable
            if waited_s > _UNREACHABLE_AFTER_S:
                raise Retriable(
                    f"{self.alias} did not acknowledge a heartbeat for "
                    f"{_UNREACHABLE_AFTER_S:.0f} s; check that its brokers run"
                )
        elif waited_s >= every_s:
            self._send(self._producer)

    def _free(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1)
        self._producer = self._refused = None

    def _send(self, producer: RecordProducer) -> None:
        heartbeat = Heartbeat(self._source, self.alias, int(self._clock.time() * 1000))
        self._sent_s = self._clock.monotonic()
        producer.produce(
            HEARTBEATS,
            heartbeat.value(),
            heartbeat.key(),
            partition=0,
            on_delivery=self._delivered,
        )

    @property
    def _tried(self) -> str:
        return f"write heartbeats to topic {HEARTBEATS}"

    def _delivered(self, refused: KafkaError | None, _: object) -> None:
        self._refused = refused
        if refused is None:
            self.beat_at = self._clock.time()
            self.error = None
            self._backoff.reset()
            self._not_before_s = -inf
