"""Leases: renewed by their holder, and observed by others.

Only the *observer's* monotonic clock is used: a Lease expires if its renewTime did not change for
its duration while it was watched. Wall clocks may therefore differ and jump. An observer that
begins, or that could not read, first watches for a full duration.

That is not enough after an outage of the API server. It then processes the watches and renewals of
a whole fleet at once, and the holders that it serves last are as alive as the others. After
``restart`` no Lease therefore expires while others are still being renewed again. Judgement resumes
when all were renewed, or when none was for a full duration and for as long as the last one took.
The same applies when the observer begins, as it may have ended together with the API server.
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


_LONGEST_RETURN = 10
"""Durations after a restart, when Leases are judged though others still return."""
_UNKNOWN_S = 6.0
"""Duration of a Lease that declares none and that was not expected."""


class LeaseView(NamedTuple):
    """The parts of a Lease that the observer compares."""

    holder: str
    """holderIdentity; a driver's is ``<pod>/<incarnation>``."""
    renew_time: str
    """Compared, never read as a time."""
    duration_s: float
    """leaseDurationSeconds; 0 when the Lease declares none."""


@dataclass
class _Watched:
    view: LeaseView | None
    since: float
    """When it changed last, or the observation began."""
    duration_s: float
    declared: bool = False
    """Whether the Lease gave the duration, now or before it was deleted."""
    repeated: bool = False
    """Whether this is the observation after one that was judged blind."""
    expired: bool = False
    renewed: bool = False
    """Whether it changed while observed: the holder of one that never did may be dead."""


class LeaseObserver:
    """All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._watched: dict[Name, _Watched] = {}
        self._expected: dict[Name, float] = {}
        self._returning: set[Name] = set()
        """Leases that were not renewed since the restart."""
        self._restarted = self._returned = 0.0
        """Time of the restart, and of the last renewal of a returning Lease."""

    def expect(self, durations_s: Mapping[Name, float], now: float) -> None:
        """Set all Leases that should exist, with the durations that their owners should declare.

        A missing Lease expires after that duration. An existing Lease keeps the duration that it
        had.
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
        """Record the current Lease, None if it was deleted; repeated calls are harmless."""
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
            # Deleted: its holder renews it at the interval of the duration that it last declared.
            duration_s, declared = watched.duration_s, watched.declared
        else:
            duration_s = self._expected.get(name, _UNKNOWN_S)
        renewed = watched is not None and lease is not None
        self._watched[name] = _Watched(lease, now, duration_s, declared, renewed=renewed)

    def restart(self, now: float) -> bool:
        """Restart after the observer was blind; return whether ``renewed`` changed for a Lease.

        Earlier observations say nothing about which holders are alive now.
        """
        changed = any(watched.renewed and not watched.expired for watched in self._watched.values())
        for watched in self._watched.values():
            if not watched.expired:
                watched.since, watched.repeated, watched.renewed = now, False, False
        self.begin(now)
        return changed

    def begin(self, now: float) -> None:
        """All Leases were read, and the watch begins: some may have been renewed already."""
        self._returning = {
            name
            for name, one in self._watched.items()
            if one.view is not None and not one.expired and not one.renewed
        }
        self._restarted = self._returned = now

    @property
    def expired(self) -> frozenset[Name]:
        """Return the Leases that were judged expired and were not renewed since."""
        return frozenset(name for name, watched in self._watched.items() if watched.expired)

    def is_expired(self, name: Name) -> bool:
        """Whether it is among ``expired``, in constant time."""
        watched = self._watched.get(name)
        return watched is not None and watched.expired

    def renewed(self, name: Name) -> bool:
        """Whether it was renewed since the observation began: its holder lives."""
        watched = self._watched.get(name)
        return watched is not None and watched.renewed

    def holder(self, name: Name) -> str:
        """Return the holderIdentity of a Lease; empty if there is none."""
        watched = self._watched.get(name)
        return watched.view.holder if watched and watched.view else ""

    def due(self, now: float) -> bool:
        """Whether there is anything to judge: read all Leases once more before you do."""
        return not self._others_return(now) and any(
            not watched.expired and now - watched.since >= watched.duration_s
            for watched in self._watched.values()
        )

    def judge(self, now: float) -> bool:
        """Mark Leases whose duration has elapsed as expired.

        If most Leases stop at once, the observer is probably blind. It then marks none, observes
        them for one more duration, and returns True.
        """
        if self._others_return(now):
            return False
        alive = [watched for watched in self._watched.values() if not watched.expired]
        # Two renewals missed: an observer goes blind for all at one moment, but the Leases run out
        # one by one, as they were renewed.
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
        """Whether the API server still takes the first renewals after a restart."""
        if not self._returning:
            return False
        duration_s = max(self._watched[name].duration_s for name in self._returning)
        silence_s = max(duration_s, self._returned - self._restarted)
        return (
            now - self._returned < silence_s
            and now - self._restarted < _LONGEST_RETURN * duration_s
        )


log = get_logger(__name__)


def micro_time() -> str:
    """Now, as Kubernetes' MicroTime has it."""
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
    """Keeps a Lease that is this process's alone: named as its pod, renewed thrice a duration."""

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
        """Whether the Lease was renewed within its duration, on this process's clock."""
        return self._renewed is not None and time.monotonic() - self._renewed < self.duration_s

    async def run(self) -> None:
        """Renew the Lease until cancelled. A failed renewal is retried at the next interval.

        An overloaded API server may need longer than one interval. Cancelling and repeating a slow
        request does not help. After a failure, the next request may therefore take the whole Lease
        duration.
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
        """Delete the Lease, so that watchers notice at once."""
        try:
            await self._client.delete(LEASE, self._namespace, self._name)
        except HeadraceError as error:
            log.info("Lease not deleted, it will expire", lease=self._name, why=str(error))

    async def _renew(self) -> None:
        sent = time.monotonic()  # not when the answer came: an observer may have seen it before
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
"""Between two checks: renewals may have waited for as long."""


class LeaseWatch:
    """For one event loop: ``run`` it, name the expected Leases, read the expired ones.

    Before it marks a Lease as expired it lists all of them: a watch may be open and dead.
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
        """Set after the first list of Leases."""
        return self._reflector.synced

    @property
    def error(self) -> HeadraceError | None:
        """Error of the watch, or None."""
        return self._reflector.error

    @property
    def expired(self) -> frozenset[Name]:
        """Namespace and name of each Lease (its driver's name) that is expired or missing."""
        return self._observer.expired

    def is_expired(self, name: Name) -> bool:
        """Return whether the named Lease is expired or missing."""
        return self._observer.is_expired(name)

    def renewed(self, name: Name) -> bool:
        """Return whether the named Lease was renewed since the watch began or was restarted."""
        return self._observer.renewed(name)

    def holder(self, name: Name) -> str:
        """Return ``<pod>/<incarnation>`` of the last holder, or an empty string without a Lease."""
        return self._observer.holder(name)

    def expect(self, durations_s: Mapping[Name, float]) -> None:
        """Set all drivers that should have a Lease, because their pods run.

        The durations are those of their flows. A Lease that declares its own duration is judged by
        it.
        """
        self._observer.expect(durations_s, time.monotonic())

    async def run(self) -> None:
        """Watch; never returns."""
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
                self._restart()  # this process was suspended, or its watch is closed
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
            self._restart()  # an answer that was so late may hold some renewals and not yet others
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
        """Return the state on which a listener acts; a renewal alone is not part of it."""
        observer = self._observer
        return observer.holder(name), observer.renewed(name), observer.is_expired(name)


def _name(lease: Object) -> Name:
    return lease["metadata"]["namespace"], lease["metadata"]["name"]
