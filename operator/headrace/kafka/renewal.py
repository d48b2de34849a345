"""Clients that live longer than what opens their cluster.

librdkafka reads certificates once, when a client is made. So whoever holds a client asks now and
then whether the files are still the same, and makes a new one when they are not.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from headrace.api import ClusterAccess
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import SecretMissing

_POLL_INTERVAL_S = 1.0
"""A kubelet takes up to a minute to bring a changed Secret: a second more is nothing."""

Client = TypeVar("Client")


class Renewal:
    """Knows the files as they were when it was made: make it before the clients."""

    def __init__(self, *clusters: ClusterAccess) -> None:
        self._clusters = [cluster for cluster in clusters if any(cluster.spec.uses())]
        self._known = self._digests()
        self._next_poll_s = time.monotonic() + _POLL_INTERVAL_S

    @property
    def due(self) -> bool:
        """Whether the files have changed since; reads them at most once a second."""
        if not self._clusters or time.monotonic() < self._next_poll_s:
            return False
        self._next_poll_s = time.monotonic() + _POLL_INTERVAL_S
        return self._digests() != self._known

    def _digests(self) -> list[str]:
        return [_state(cluster) for cluster in self._clusters]


def _state(cluster: ClusterAccess) -> str:
    try:
        return read_credentials(cluster).digest
    except SecretMissing as missing:
        return str(missing)


class Renewed(Generic[Client]):
    """A client that is made when it is first needed, and again when its files have changed.

    Thread-safe. Whoever uses an old one still may go on with it.
    """

    def __init__(self, cluster: ClusterAccess, make: Callable[[], Client]) -> None:
        self._cluster = cluster
        self._make = make
        self._client: Client | None = None
        self._renewal = Renewal()
        self._making = threading.Lock()

    def get(self) -> Client:
        """The client; raises what making one raises."""
        with self._making:
            if self._client is None or self._renewal.due:
                self._renewal = Renewal(self._cluster)
                self._client = None
                self._client = self._make()
            return self._client

    @property
    def current(self) -> Client | None:
        """The client, if there is one now."""
        return self._client

    def forget(self) -> None:
        """Whatever client there is: the next one that is asked for is a new one."""
        with self._making:
            self._client = None

    def discard(self, client: Client) -> None:
        """That client is of no more use: the next one that is asked for is a new one."""
        with self._making:
            if self._client is client:
                self._client = None
