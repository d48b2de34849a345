"""Watches the Leases of drivers and says which are lost, by the rules of ``lease_observer``."""

import asyncio
import time
from collections.abc import Callable, Iterable

from headrace.errors import HeadraceError
from headrace.k8s.client import Client
from headrace.k8s.kinds import LEASE, Object
from headrace.k8s.lease import read_lease
from headrace.k8s.lease_observer import LeaseObserver, LeaseView, Name
from headrace.k8s.reflector import Change, ChangeType, Reflector
from headrace.logs import get_logger

log = get_logger(__name__)

_LOOK_EVERY_S = 0.5
_BLIND_AFTER_S = 4 * _LOOK_EVERY_S
"""Without a look: renewals may have waited for as long."""


class LeaseWatch:
    """For one event loop: ``run`` it, say who is expected, ask who is lost.

    Before anybody is called lost, all Leases are read once more: a watch may be open and dead.
    """

    def __init__(
        self,
        client: Client,
        labels: str,
        *,
        namespace: str | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_change`` hears that ``expired``, ``heard`` or a holder changed; it must not raise
        nor block."""
        self._client, self._labels, self._namespace = client, labels, namespace
        self._on_change = on_change
        self._observer = LeaseObserver()
        self._reflector = Reflector(
            client, LEASE, namespace, labels=labels, on_change=self._changed
        )

    @property
    def synced(self) -> asyncio.Event:
        """Set when all Leases were seen once."""
        return self._reflector.synced

    @property
    def error(self) -> HeadraceError | None:
        """Why it sees nothing now."""
        return self._reflector.error

    @property
    def expired(self) -> frozenset[Name]:
        """Namespace and name of each Lease (its driver's name) that is expired or missing."""
        return self._observer.expired

    def is_expired(self, name: Name) -> bool:
        """Whether one is."""
        return self._observer.is_expired(name)

    def heard(self, name: Name) -> bool:
        """Whether it was seen to be renewed since this process began, or began anew, to watch."""
        return self._observer.heard(name)

    def holder(self, name: Name) -> str:
        """``<pod>/<incarnation>`` of the last holder that was seen; empty without a Lease."""
        return self._observer.holder(name)

    def expect(self, names: Iterable[Name]) -> None:
        """All drivers that should have a Lease: their pods run."""
        self._observer.expect(names, time.monotonic())

    async def run(self) -> None:
        """Watch; never returns."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._look())

    async def _look(self) -> None:
        await self._reflector.synced.wait()
        last = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = time.monotonic()
            if now - last > _BLIND_AFTER_S or self._reflector.blind_s > 0:
                self._restart()  # this process stood still, or sees nothing
            elif self._observer.due(now):
                await self._judge()
            last = time.monotonic()

    async def _judge(self) -> None:
        asked = time.monotonic()
        try:
            leases = await self._client.list(LEASE, self._namespace, labels=self._labels)
        except HeadraceError as error:
            log.info("cannot tell who is lost, watching once more", why=str(error))
            self._restart()
            return
        if time.monotonic() - asked > _BLIND_AFTER_S:
            self._restart()  # an answer that was so late may hold some renewals and not yet others
            return
        before = self._observer.expired
        for lease in leases:
            self._see(_name(lease), read_lease(lease))
        if self._observer.judge(time.monotonic()):
            log.warning("most Leases seem to expire together, watching once more")
        if self._observer.expired - before:
            self._on_change()

    def _restart(self) -> None:
        if self._observer.restart(time.monotonic()):
            self._on_change()

    def _changed(self, change: Change) -> None:
        deleted = change.type is ChangeType.DELETED
        self._see(_name(change.object), None if deleted else read_lease(change.object))

    def _see(self, name: Name, lease: LeaseView | None) -> None:
        before = self._told(name)
        self._observer.see(name, lease, time.monotonic())
        if before != self._told(name):
            self._on_change()

    def _told(self, name: Name) -> tuple[str, bool, bool]:
        """What a listener acts on; a mere renewal is none of it."""
        observer = self._observer
        return observer.holder(name), observer.heard(name), observer.is_expired(name)


def _name(lease: Object) -> Name:
    return lease["metadata"]["namespace"], lease["metadata"]["name"]
