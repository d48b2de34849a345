"""One driver's units on Kubernetes, by watches that select no more than those."""

import asyncio
from collections.abc import Callable, Iterator

from headrace.api import ReplicationFlow, ReplicationTask, standby_label
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import TASK, Change, Client, Object, Reflector, is_older, is_owned, parse
from headrace.logs import get_logger

log = get_logger(__name__)


class DriverUnits:
    """Those that are assigned to a driver, those that it owns, and its standbys.

    With 10,000 tasks on 100 drivers, a driver that watched its whole flow would receive every
    report of every other one. So there are three watches, two by field; standbys are a list, which
    no field selector can match: the operator puts a label on the task for each.
    """

    def __init__(
        self, client: Client, namespace: str, driver: str, changed: Callable[[], None]
    ) -> None:
        """``changed`` is called on the event loop: at every change of one of them, and once those
        that are assigned or owned were listed, even if the list that came last was empty."""
        self._client, self._namespace, self._changed = client, namespace, changed
        self._parsed: dict[str, tuple[str, ReplicationTask | None]] = {}
        self._standing_by = asyncio.Event()
        self._active = [
            self._reflector(fields=f"spec.driverName={driver}"),
            self._reflector(fields=f"status.driverName={driver}"),
        ]
        self._standby = self._reflector(labels=standby_label(driver))

    async def run(self) -> None:
        """Watch; never returns."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._active:
                tasks.create_task(reflector.run())
            for reflector in self._active:
                await reflector.synced.wait()
            self._changed()
            await self._standing_by.wait()
            tasks.create_task(self._standby.run())

    def stand_by(self) -> None:
        """Watch its standbys, too: the flow has some."""
        self._standing_by.set()

    @property
    def synced(self) -> bool:
        """Whether those that are assigned to it or owned by it were listed."""
        return all(reflector.synced.is_set() for reflector in self._active)

    @property
    def error(self) -> HeadraceError | None:
        """Why some of them cannot be watched now."""
        return next((reflector.error for reflector in self._active if reflector.error), None)

    def of(self, flow: ReplicationFlow) -> Iterator[ReplicationTask]:
        """Those of this very flow, the newest that is known of each."""
        newest: dict[str, Object] = {}
        for reflector in (*self._active, self._standby):
            for object in reflector:
                name = object["metadata"]["name"]
                if name not in newest or is_older(newest[name], object):
                    newest[name] = object
        self._parsed = {name: self._parse(name, object) for name, object in newest.items()}
        for _, task in self._parsed.values():
            if task is not None and is_owned(task.metadata.owner_references, flow):
                yield task

    def _reflector(self, *, fields: str = "", labels: str = "") -> Reflector:
        def changed(_: Change) -> None:
            self._changed()

        return Reflector(
            self._client, TASK, self._namespace, fields=fields, labels=labels, on_change=changed
        )

    def _parse(self, name: str, object: Object) -> tuple[str, ReplicationTask | None]:
        version = object["metadata"]["resourceVersion"]
        known = self._parsed.get(name)
        if known is not None and known[0] == version:
            return known
        try:
            return version, parse(ReplicationTask, object)
        except InvalidSpec as error:
            log.error("unit ignored, it is not understood", task=name, why=str(error))
            return version, None
