"""Leases: holders renew them, and observers detect expired ones.

Only the *observer's* monotonic clock is used. A Lease expires if its renewTime does not change for
its duration while it is observed. Wall clocks may therefore differ and jump. An observer is *blind*
while it cannot read renewals. After its start, or after it was blind, it first observes for a full
duration.

A full duration is not enough after an outage of the API server. The server then processes the
watches and renewals of all drivers at once, and serves some late although they are alive. After
``restart``, no Lease therefore expires while Leases are still being renewed for the first time.
Leases can expire again when all were renewed. They also can when no first renewal has occurred for
a full duration, or for the time from the restart to the latest first renewal, if that is longer.
The start of the observer counts as a restart, because it may have ended together with the API
server.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.k8s.client import Client
from headrace.k8s.kinds import LEASE, Object
from headrace.k8s.reflector import ChangeType, Reflector, WatchEvent
from headrace.logs import get_logger

Name = tuple[str, str]
"""Namespace and name of a Lease."""


_MAX_RETURN_PERIODS = 10
"""Maximum number of durations after a restart during which no Lease expires."""
_UNKNOWN_S = 6.0
"""Duration in seconds of a Lease that neither declares a duration nor has one from ``expect``."""


class LeaseView(NamedTuple):
    """The parts of a Lease that the observer compares."""

    holder: str
    """holderIdentity. For a driver it is ``<pod>/<incarnation>``."""
    renew_time: str
    """renewTime. It is only compared, never interpreted as a time."""
    duration_s: float
    """leaseDurationSeconds, or 0 if the Lease declares none."""


@dataclass
class _Watched:
    view: LeaseView | None
    since: float
    """Time of the Lease's last change, or of the start of the observation if it has not changed."""
    duration_s: float
    declared: bool = False
    """True if the Lease declared the duration, now or before it was deleted."""
    repeated: bool = False
    """True if the duration is observed a second time because the observer was probably blind."""
    expired: bool = False
    renewed: bool = False
    """True if a change was observed. The holder of a Lease that never changed may be dead."""


class LeaseObserver:
    """Detects expired Leases. All times are in seconds on one monotonic clock."""

    def __init__(self) -> None:
        self._watched: dict[Name, _Watched] = {}
        self._expected: dict[Name, float] = {}
        self._returning: set[Name] = set()
        """Leases that have not been renewed since the restart."""
        self._restarted = self._returned = 0.0
        """Time of the restart, and time of the last renewal of a returning Lease."""

    def expect(self, durations_s: Mapping[Name, float], now: float) -> None:
        """Set all Leases that should exist, with their expected durations in seconds.

        A missing Lease expires after its expected duration. If a Lease declared a duration, the
        declared one counts.
        """
        self._expected = dict(durations_s)
        for name, watched in list(self._watched.items()):
            if watched.view is None and name not in self._expected:
                del self._watched[name]
        for name, duration_s in durations_s.items():
            watched = self._watched.setdefault(name, _Watched(None, now, duration_s))
            if not watched.declared:
                watched.duration_s = duration_s

    def observe(self, name: Name, lease: LeaseView | None, now: float) -> None:
        """Record the current state of a Lease, or None if it was deleted.

        A state that equals the last recorded one changes nothing.
        """
        if lease is None and name not in self._expected:
            self._watched.pop(name, None)
            self._returning.discard(name)
            return
        watched = self._watched.get(name)
        if watched is not None and watched.view == lease:
            return
        if name in self._returning:
            self._returning.remove(name)
            self._returned = now
        declared = lease is not None and lease.duration_s > 0
        if lease is not None and declared:
            duration_s = lease.duration_s
        elif watched is not None:
            # The Lease was deleted. Its holder still renews at the interval of the last declared
            # duration.
            duration_s, declared = watched.duration_s, watched.declared
        else:
            duration_s = self._expected.get(name, _UNKNOWN_S)
        renewed = watched is not None and lease is not None
        self._watched[name] = _Watched(lease, now, duration_s, declared, renewed=renewed)

    def restart(self, now: float) -> bool:
        """Restart after the observer was blind, and return True if ``renewed`` changed for a Lease.

        Observations from before the restart do not show which holders are alive now.
        """
        changed = any(watched.renewed and not watched.expired for watched in self._watched.values())
        for watched in self._watched.values():
            if not watched.expired:
                watched.since, watched.repeated, watched.renewed = now, False, False
        self.begin(now)
        return changed

    def begin(self, now: float) -> None:
        """Begin the observation, after all Leases were read."""
        self._returning = {
            name
            for name, one in self._watched.items()
            if one.view is not None and not one.expired and not one.renewed
        }
        self._restarted = self._returned = now

    @property
    def expired(self) -> frozenset[Name]:
        """Leases that have expired and have not been renewed since."""
        return frozenset(name for name, watched in self._watched.items() if watched.expired)

    def is_expired(self, name: Name) -> bool:
        """Return True if a Lease is in ``expired``. Takes constant time."""
        watched = self._watched.get(name)
        return watched is not None and watched.expired

    def renewed(self, name: Name) -> bool:
        """Return True if a Lease was renewed since the observation began.

        A renewal proves that the holder of the Lease is alive.
        """
        watched = self._watched.get(name)
        return watched is not None and watched.renewed

    def holder(self, name: Name) -> str:
        """Return the holderIdentity of a Lease, or an empty string if there is none."""
        watched = self._watched.get(name)
        return watched.view.holder if watched and watched.view else ""

    def due(self, now: float) -> bool:
        """Return True if ``judge`` is due. Read all Leases once more before you call it."""
        return not self._others_return(now) and any(
            not watched.expired and now - watched.since >= watched.duration_s
            for watched in self._watched.values()
        )

    def judge(self, now: float) -> bool:
        """Mark Leases whose duration has elapsed as expired.

        If most Leases were not renewed, the observer is probably blind. No Lease is then marked,
        the silent Leases are observed for another duration, and the result is True.
        """
        if self._others_return(now):
            return False
        alive = [watched for watched in self._watched.values() if not watched.expired]
        # Include Leases that missed two renewals. A blind observer misses all renewals from the
        # same moment on, but the Leases' durations end one after another.
        silent = [w for w in alive if now - w.since >= w.duration_s * 2 / 3]
        due = [w for w in silent if now - w.since >= w.duration_s]
        most = len(silent) > 1 and 2 * len(silent) > len(alive)
        blind = most and bool(due) and not all(w.repeated for w in due)
        for watched in silent if blind else due:
            if blind:
                watched.since, watched.repeated = now, True
            else:
                watched.expired = True
        return blind

    def _others_return(self, now: float) -> bool:
        """Return True while Leases are still renewed for the first time since ``begin``."""
        if not self._returning:
            return False
        duration_s = max(self._watched[name].duration_s for name in self._returning)
        silence_s = max(duration_s, self._returned - self._restarted)
        return (
            now - self._returned < silence_s
            and now - self._restarted < _MAX_RETURN_PERIODS * duration_s
        )


log = get_logger(__name__)


def micro_time() -> str:
    """Return the current time in the format of Kubernetes' MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_lease(lease: Object) -> LeaseView:
    """Return the parts of a Lease that an observer compares."""
    spec = lease.get("spec") or {}
    return LeaseView(
        holder=spec.get("holderIdentity") or "",
        renew_time=spec.get("renewTime") or "",
        duration_s=float(spec.get("leaseDurationSeconds") or 0),
    )


class LeaseKeeper:
    """Renews the Lease of this process three times within its duration.

    The Lease has the name of the process's pod.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        holder: str,
        *,
        duration_s: int,
        manager: str,
        labels: Mapping[str, str],
        owners: Sequence[Object] = (),
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._holder, self.duration_s, self._manager = holder, duration_s, manager
        self._labels, self._owners = dict(labels), list(owners)
        self._acquired = micro_time()
        self._renewed: float | None = None

    @property
    def held(self) -> bool:
        """True if the Lease was renewed within its duration, by this process's clock."""
        return self._renewed is not None and time.monotonic() - self._renewed < self.duration_s

    async def run(self) -> None:
        """Renew the Lease until cancelled. A failed renewal is retried at the next interval.

        An overloaded API server may need longer than one interval, and cancelling and repeating a
        slow request does not help. After a failure, a request may therefore take the whole duration
        of the Lease.
        """
        failing = False
        while True:
            interval_s = self.duration_s / 3 * random.uniform(0.9, 1.0)
            due = time.monotonic() + interval_s
            try:
                async with asyncio.timeout(self.duration_s if failing else interval_s):
                    await self._renew()
                failing = False
            except (HeadraceError, TimeoutError) as error:
                if not failing:
                    why = str(error) or "the API server did not answer in time"
                    log.warning("Lease not renewed, tried again", lease=self._name, why=why)
                failing = True
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def release(self) -> None:
        """Delete the Lease, so that observers notice the end at once."""
        try:
            await self._client.delete(LEASE, self._namespace, self._name)
        except HeadraceError as error:
            log.info("Lease not deleted, it will expire", lease=self._name, why=str(error))

    async def _renew(self) -> None:
        sent = time.monotonic()  # before the response: an observer may see the renewal earlier
        await self._client.apply(
            {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.name,
                "metadata": {
                    "name": self._name,
                    "namespace": self._namespace,
                    "labels": self._labels,
                    "ownerReferences": self._owners,
                },
                "spec": {
                    "holderIdentity": self._holder,
                    "leaseDurationSeconds": self.duration_s,
                    "acquireTime": self._acquired,
                    "renewTime": micro_time(),
                },
            },
            manager=self._manager,
        )
        self._renewed = sent


_CHECK_EVERY_S = 0.5
_BLIND_AFTER_S = 4 * _CHECK_EVERY_S
"""Time in seconds between two checks beyond which the observer was probably suspended.

Leases may have been renewed during that time. The observation therefore starts again.
"""


class LeaseWatch:
    """Detects expired Leases of drivers. Use it from one event loop.

    Start ``run``, set the expected Leases with ``expect``, and read ``expired``. Before it marks a
    Lease as expired it lists all Leases, because an open watch may be dead.
    """

    def __init__(
        self,
        client: Client,
        labels: str,
        *,
        namespace: str | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a watch over Leases.

        ``on_change`` is called when ``expired``, ``renewed`` or a holder changed. It must not raise
        or block.
        """
        self._client, self._labels, self._namespace = client, labels, namespace
        self._on_change = on_change
        self._observer = LeaseObserver()
        self._reflector = Reflector(
            client, LEASE, namespace, labels=labels, on_change=self._changed
        )

    @property
    def synced(self) -> asyncio.Event:
        """Event that is set after the first list of Leases."""
        return self._reflector.synced

    @property
    def error(self) -> HeadraceError | None:
        """Error of the watch, or None."""
        return self._reflector.error

    @property
    def expired(self) -> frozenset[Name]:
        """Namespaces and names of the Leases that are expired or missing.

        A Lease has the name of its driver.
        """
        return self._observer.expired

    def is_expired(self, name: Name) -> bool:
        """Return True if a Lease is expired or missing."""
        return self._observer.is_expired(name)

    def renewed(self, name: Name) -> bool:
        """Return True if a Lease was renewed since the watch began or was restarted."""
        return self._observer.renewed(name)

    def holder(self, name: Name) -> str:
        """Return ``<pod>/<incarnation>`` of the last holder, or an empty string without a Lease."""
        return self._observer.holder(name)

    def expect(self, durations_s: Mapping[Name, float]) -> None:
        """Set the Leases that should exist, because the pods of their drivers run.

        ``durations_s`` contains the Lease duration of each driver, which its flow specifies. If a
        Lease declares another duration, the declared one counts.
        """
        self._observer.expect(durations_s, time.monotonic())

    async def run(self) -> None:
        """Watch the Leases. Never returns."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._check())

    async def _check(self) -> None:
        await self._reflector.synced.wait()
        self._observer.begin(time.monotonic())
        last = time.monotonic()
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            now = time.monotonic()
            if now - last > _BLIND_AFTER_S or self._reflector.blind_s > 0:
                self._restart()  # the process was suspended, or the watch is closed
            elif self._observer.due(now):
                await self._judge()
            last = time.monotonic()

    async def _judge(self) -> None:
        asked = time.monotonic()
        try:
            leases = await self._client.list(LEASE, self._namespace, labels=self._labels)
        except HeadraceError as error:
            log.info("cannot list Leases, observing them for another duration", why=str(error))
            self._restart()
            return
        if time.monotonic() - asked > _BLIND_AFTER_S:
            self._restart()  # a late response may lack some renewals
            return
        before = self._observer.expired
        for lease in leases:
            self._observe(_name(lease), read_lease(lease))
        if self._observer.judge(time.monotonic()):
            log.warning("most Leases stopped together, observing them for another duration")
        if self._observer.expired - before:
            self._on_change()

    def _restart(self) -> None:
        if self._observer.restart(time.monotonic()):
            self._on_change()

    def _changed(self, change: WatchEvent) -> None:
        deleted = change.type is ChangeType.DELETED
        self._observe(_name(change.object), None if deleted else read_lease(change.object))

    def _observe(self, name: Name, lease: LeaseView | None) -> None:
        before = self._reported(name)
        self._observer.observe(name, lease, time.monotonic())
        if before != self._reported(name):
            self._on_change()

    def _reported(self, name: Name) -> tuple[str, bool, bool]:
        """Return the facts about a Lease whose changes are reported. A repeated renewal is none."""
        observer = self._observer
        return observer.holder(name), observer.renewed(name), observer.is_expired(name)


def _name(lease: Object) -> Name:
    return lease["metadata"]["namespace"], lease["metadata"]["name"]
