"""The API server's record of units and flows, with times, from its watches alone."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.k8s import ChangeType, Client, Object, Reflector, WatchEvent
from headrace.k8s.kinds import FLOW, TASK


@dataclass(frozen=True)
class Entry:
    """A unit got another driver, in its spec or (a claim) in its status."""

    at_s: float
    task: str
    driver: str
    is_claim: bool


class Place(NamedTuple):
    """Assignment and state of a unit."""

    wanted: str = ""
    """The driver that it is assigned to."""
    holder: str = ""
    phase: str = ""
    epoch: int = 0


class Ledger:
    """Record of changes, for one event loop; times are monotonic."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.entries: list[Entry] = []
        self.holders: dict[str, str] = {}
        """Holder of each unit."""
        self.unsettled: set[str] = set()
        """Units that do not run where they shall."""
        self.ready: dict[str, float] = {}
        """Time at which each flow was first seen to be Ready."""
        self.tasks = Reflector(client, TASK, namespace, on_change=self._task)
        self.flows = Reflector(client, FLOW, namespace, on_change=self._flow)

    def since(self, mark: int, *, claims: bool) -> list[Entry]:
        """Return entries after the first ``mark`` ones: claims, or assignments."""
        return [entry for entry in self.entries[mark:] if entry.is_claim is claims]

    def held_by(self, driver: str) -> set[str]:
        """Return the units of a driver."""
        return {task for task, holder in self.holders.items() if holder == driver}

    def are_elsewhere(self, tasks: Iterable[str], driver: str) -> bool:
        """Return whether all of these run, and none on ``driver``."""
        return all(self.holders[task] != driver and task not in self.unsettled for task in tasks)

    def _task(self, change: WatchEvent) -> None:
        name, now = change.object["metadata"]["name"], time.monotonic()
        if change.type is ChangeType.DELETED:
            self.holders.pop(name, None)
            self.unsettled.discard(name)
            return
        place = place_of(change.object)
        before = place_of(change.before) if change.before else Place()
        if place.wanted != before.wanted:
            self.entries.append(Entry(now, name, place.wanted, False))
        if place.holder and place.epoch != before.epoch:
            self.entries.append(Entry(now, name, place.holder, True))
        self.holders[name] = place.holder
        if place.wanted and place.wanted == place.holder and place.phase == "Running":
            self.unsettled.discard(name)
        else:
            self.unsettled.add(name)

    def _flow(self, change: WatchEvent) -> None:
        conditions = (change.object.get("status") or {}).get("conditions", ())
        if any((one["type"], one["status"]) == ("Ready", "True") for one in conditions):
            self.ready.setdefault(change.object["metadata"]["name"], time.monotonic())


def place_of(unit: Object) -> Place:
    """Return the place in a unit's object."""
    status = unit.get("status") or {}
    return Place(
        unit["spec"].get("driverName", ""),
        status.get("driverName", ""),
        status.get("phase", ""),
        status.get("epoch", 0),
    )
