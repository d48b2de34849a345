"""Watches the Leases of drivers and says which are expired, by the rules of ``lease_observer``."""

import asyncio
import time
from collections.abc import Callable, Mapping

from headrace.errors import HeadraceError
from headrace.k8s.client import Client
from headrace.k8s.kinds import LEASE, Object
from headrace.k8s.lease import read_lease
from headrace.k8s.lease_observer import LeaseObserver, LeaseView, Name
from headrace.k8s.reflector import Change, ChangeType, Reflector
from headrace.logs import get_logger

log = get_logger(__name__)

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
        """``on_change`` is called when ``expired``, ``renewed`` or a holder changed; it must not
        raise nor block."""
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
        """Why it cannot watch now."""
        return self._reflector.error

    @property
    def expired(self) -> frozenset[Name]:
        """Namespace and name of each Lease (its driver's name) that is expired or missing."""
        return self._observer.expired

    def is_expired(self, name: Name) -> bool:
        """Whether one is."""
        return self._observer.is_expired(name)

    def renewed(self, name: Name) -> bool:
        """Whether it was renewed since this process began, or began again, to watch."""
        return self._observer.renewed(name)

    def holder(self, name: Name) -> str:
        """``<pod>/<incarnation>`` of the last holder; empty without a Lease."""
        return self._observer.holder(name)

    def expect(self, durations_s: Mapping[Name, float]) -> None:
        """All drivers that should have a Lease, as their pods run, with the duration that their
        flow asks for; a Lease that declares its own duration is judged by that."""
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

    def _changed(self, change: Change) -> None:
        deleted = change.type is ChangeType.DELETED
        self._observe(_name(change.object), None if deleted else read_lease(change.object))

    def _observe(self, name: Name, lease: LeaseView | None) -> None:
        before = self._reported(name)
        self._observer.observe(name, lease, time.monotonic())
        if before != self._reported(name):
            self._on_change()

    def _reported(self, name: Name) -> tuple[str, bool, bool]:
        """What a listener acts on; a renewal alone is not part of it."""
        observer = self._observer
        return observer.holder(name), observer.renewed(name), observer.is_expired(name)


def _name(lease: Object) -> Name:
    return lease["metadata"]["namespace"], lease["metadata"]["name"]
