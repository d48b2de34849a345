"""Local copies of the objects of one kind.

A ``Reflector`` keeps its copy by list and watch, as client-go's ``Reflector`` does.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import HeadraceError, Retriable
from headrace.k8s.client import Client
from headrace.k8s.errors import Expired
from headrace.k8s.kinds import Kind, Object, Objects
from headrace.logs import get_logger
from headrace.timing import Backoff

log = get_logger(__name__)

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.2, 8.0
_SHORTEST_WATCH_S = 1.0
"""Minimum duration of a watch in seconds. A shorter watch counts as failed and delays the next
one."""
_WATCH_S = (300, 600)
"""Range of the duration of a watch in seconds, as in client-go.

Random durations prevent the watches of many clients from ending together.
"""

Key = tuple[str, str]
"""Namespace and name."""


class ChangeType(StrEnum):
    """Type of a change to an object, as in a watch."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class WatchEvent:
    """A change to one object."""

    type: ChangeType
    object: Object
    """Current object, or the last known one if it was deleted or the selectors exclude it."""
    before: Object | None


class ObjectCopy:
    """Local copy of the objects of one kind. Use it from one event loop.

    ``get`` and iteration may be used at any time.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        on_change: Callable[[WatchEvent], None] = lambda change: None,
    ) -> None:
        """Create an empty copy.

        ``on_change`` receives each change after it was stored. It must not raise or block.
        """
        self.synced = asyncio.Event()
        """Event that is set after the first list was stored. It is never cleared."""
        self.error: HeadraceError | None = None
        """Error of the last request, or None."""
        self._client, self._kind, self._namespace = client, kind, namespace
        self._labels, self._fields = labels, fields
        self._on_change = on_change
        self._objects: dict[Key, Object] = {}

    def get(self, name: str, namespace: str | None = None) -> Object | None:
        """Return an object of the copy, or None. The default namespace is the copy's."""
        return self._objects.get((namespace or self._namespace or "", name))

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    async def _list(self) -> str:
        """Replace the copy with the current objects, and return the version of the list."""
        objects, version = await self._client.list_versioned(
            self._kind, self._namespace, labels=self._labels, fields=self._fields
        )
        self._note_recovery()
        self._replace(objects, version)
        self.synced.set()
        return version

    def _replace(self, objects: Objects, version: str) -> None:
        """Store a list of all objects, and report the differences."""
        there = {key_of(object) for object in objects}
        for key in self._objects.keys() - there:
            self._drop(self._objects[key])
        for object in objects:
            self._put(object)

    def _put(self, object: Object) -> None:
        before = self._objects.get(key_of(object))
        self._objects[key_of(object)] = object
        if before is None:
            self._on_change(WatchEvent(ChangeType.ADDED, object, None))
        elif _version(before) != _version(object):
            self._on_change(WatchEvent(ChangeType.MODIFIED, object, before))

    def _drop(self, object: Object) -> None:
        before = self._objects.pop(key_of(object), None)
        if before is not None:
            self._on_change(WatchEvent(ChangeType.DELETED, object, before))

    def _note(self, error: HeadraceError) -> None:
        if self.error is None:
            # Permanent errors, such as a missing permission, are logged at a higher level.
            say = log.warning if isinstance(error, Retriable) else log.error
            say("cannot watch, tried again and again", kind=self._kind.name, why=str(error))
        self.error = error

    def _note_recovery(self) -> None:
        if self.error is not None:
            log.info("sees the API server again", kind=self._kind.name)
        self.error = None


class Reflector(ObjectCopy):
    """Local copy that a list and a watch keep up to date. Use it from one event loop.

    ``run`` retries after every error until it is cancelled. ``blind_s`` shows how current the copy
    is. After an outage the copy stays unchanged until a new list replaces it. Changes during the
    outage are reported then.
    """

    _version = ""
    """Version after which to watch, or empty if a list is needed."""
    _blind_since: float | None = 0.0
    """Time when the last watch ended, or None while a watch is open."""

    @property
    def blind_s(self) -> float:
        """Seconds since the last watch ended, or 0 while a watch is open."""
        return 0.0 if self._blind_since is None else time.monotonic() - self._blind_since

    async def run(self) -> None:
        """Keep the copy up to date. Never returns."""
        backoff = Backoff(_FIRST_BACKOFF_S, _MAX_BACKOFF_S)
        while True:
            began = time.monotonic()
            try:
                if not self._version:
                    self._version = await self._list()
                await self._watch()
            except Expired:
                log.info("watch is too old, listing again", kind=self._kind.name)
                self._version = ""
            except HeadraceError as error:
                self._note(error)
            self._blind_since = self._blind_since or time.monotonic()
            lasted_s = time.monotonic() - began
            if lasted_s > _SHORTEST_WATCH_S:
                backoff.reset()
            if lasted_s <= _SHORTEST_WATCH_S or self.error is not None:
                await asyncio.sleep(backoff.next_s())

    async def _watch(self) -> None:
        events = self._client.watch(
            self._kind,
            self._namespace,
            self._version,
            labels=self._labels,
            fields=self._fields,
            timeout_s=random.randint(*_WATCH_S),
        )
        async with aclosing(events):
            async for type, object in events:
                match type:
                    case "CONNECTED":
                        self._note_recovery()
                        self._blind_since = None
                        continue
                    case "ADDED" | "MODIFIED":
                        self._put(object)
                    case "DELETED":
                        self._drop(object)
                self._version = object["metadata"]["resourceVersion"]


def is_older(object: Object, other: Object) -> bool:
    """Return True if ``object`` has an earlier version than ``other`` of the same kind.

    The resource versions of one kind can be compared (KEP-5504).
    """
    return int(_version(object)) < int(_version(other))


def key_of(object: Object) -> Key:
    """Return the namespace and the name of an object."""
    metadata = object["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version(object: Object) -> str:
    return str(object["metadata"]["resourceVersion"])
