"""Results of a takeover, kept until a lane continues with them. Thread-safe."""

import threading
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.errors import Fatal, Retriable
from headrace.movers.preserved.ends import End
from headrace.movers.preserved.owner import Closer, TaskProducers
from headrace.replication import OwnerProducer


class Opening(NamedTuple):
    """Opening of one partition of the target; it is used once."""

    owner: TaskProducers
    end: End
    closer: Closer | None
    """None: it has expired, so that nobody can close the partition."""


class Openings:
    """Openings of one flow's mover."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taking_over: dict[str, threading.Lock] = {}
        self._owners: dict[OwnerProducer, TaskProducers] = {}
        self._ends: dict[tuple[OwnerProducer, TopicPartition], tuple[End, Closer | None]] = {}
        self._used: set[OwnerProducer] = set()

    def taking_over(self, name: str) -> threading.Lock:
        """Return the lock to hold during a takeover for the task with this transactional id.

        A restore that its task has given up may still be filling a partition.
        """
        with self._lock:
            return self._taking_over.setdefault(name, threading.Lock())

    def current(self, name: str) -> OwnerProducer | None:
        """Return an open lane's writer: with another epoch the lane could fill no gap."""
        with self._lock:
            return next((one for one in self._used if one.transactional_id == name), None)

    def identified(self, writer: OwnerProducer, owner: TaskProducers) -> None:
        """Record a new identity; its earlier epochs become unusable."""
        with self._lock:
            for one in [one for one in self._owners if one.id == writer.id]:
                del self._owners[one]
                self._ends = {key: end for key, end in self._ends.items() if key[0] != one}
            self._owners[writer] = owner

    def owner(self, writer: OwnerProducer) -> TaskProducers:
        """All its ids. ``Retriable``: it has another epoch by now."""
        with self._lock:
            if (owner := self._owners.get(writer)) is None:
                raise Retriable(f"{writer.transactional_id} has another epoch by now")
            return owner

    def found(
        self, writer: OwnerProducer, at: TopicPartition, end: End, closer: Closer | None
    ) -> None:
        """Nobody writes to the partition now, and there it ends."""
        with self._lock:
            self._ends[writer, at] = end, closer

    def begin(self, writer: OwnerProducer, at: TopicPartition) -> Opening:
        """Return the opening from which a lane writes until ``close``."""
        with self._lock:
            owner, found = self._owners.get(writer), self._ends.pop((writer, at), None)
            if owner is None or found is None:
                raise Fatal(f"internal error: {at} would be written without a take-over")
            self._used.add(writer)
            return Opening(owner, *found)

    def close(self, writer: OwnerProducer) -> None:
        """No lane writes any more."""
        with self._lock:
            self._used.discard(writer)
