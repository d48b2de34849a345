"""Local copy of objects that kopf watches.

kopf reports events, but no deletion that happened while its watch was closed. The watch ends with
410 Gone, for example. A periodic list therefore corrects the copy. It also provides the first list,
after which the copy is complete.
"""

import asyncio
import random
from collections.abc import Callable

from headrace.errors import HeadraceError
from headrace.k8s import (
    Client,
    Key,
    Kind,
    Object,
    ObjectCopy,
    Objects,
    WatchEvent,
    is_older,
    key_of,
)
from headrace.timing import Backoff

LIST_EVERY_S = 60.0
"""Maximum time until a deletion that no watch reported is noticed, in seconds."""
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.2, 8.0


class KopfCopy(ObjectCopy):
    """Local copy that events of kopf and a periodic list keep up to date.

    Events and lists arrive in any order. The higher version counts, because versions of one kind
    can be compared. Use it from one event loop.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str,
        on_change: Callable[[WatchEvent], None],
        list_every_s: float = LIST_EVERY_S,
    ) -> None:
        super().__init__(client, kind, namespace, labels=labels, on_change=on_change)
        self._list_every_s = list_every_s
        self._deleted: dict[Key, int] = {}
        """Versions at which objects no longer existed. An older event or list is ignored."""
        self._listed = 0
        """Version of the last list. Deletions before it are forgotten."""

    def observe(self, object: Object, *, deleted: bool) -> None:
        """Store an object from an event of kopf, or remove it if it was ``deleted``."""
        key, version = key_of(object), int(object["metadata"]["resourceVersion"])
        before = self._objects.get(key)
        if version <= self._deleted.get(key, 0) or (before and is_older(object, before)):
            return
        if deleted:
            self._deleted[key] = version
            self._drop(object)
        else:
            self._put(object)

    async def run(self) -> None:
        """List the objects at intervals, and retry after every error. Never returns."""
        backoff = Backoff(_FIRST_BACKOFF_S, _MAX_BACKOFF_S)
        while True:
            try:
                await self._list()
                backoff.reset()
                wait_s = self._list_every_s * random.uniform(0.9, 1.0)
            except HeadraceError as error:
                self._note(error)
                wait_s = backoff.next_s()
            await asyncio.sleep(wait_s)

    def _replace(self, objects: Objects, version: str) -> None:
        """Store a list, except where an event has reported a later version."""
        there = {key_of(object) for object in objects}
        listed = int(version)
        self._deleted = {key: at for key, at in self._deleted.items() if at > self._listed}
        for key, known in list(self._objects.items()):
            if key not in there and int(known["metadata"]["resourceVersion"]) <= listed:
                self._deleted[key] = listed
                self._drop(known)
        for object in objects:
            self.observe(object, deleted=False)
        self._listed = listed
