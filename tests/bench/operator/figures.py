"""Figures that are measured."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Call = tuple[str, str]
"""A verb and a resource, with its subresource."""
READS = ("get", "list")


@dataclass(frozen=True)
class Seen:
    """Figures of the operator during a window."""

    seconds: float
    calls: Counter[Call]
    reconciles_ms: Sequence[int]
    """Milliseconds of each reconcile."""
    cpu_s: float
    rss: Sequence[int]
    """Resident bytes, ten times a second."""
    answers_ms: Sequence[float]
    """Milliseconds until each health request was answered by the event loop."""

    @property
    def reads(self) -> int:
        """Requests for objects and lists."""
        return sum(count for (verb, _), count in self.calls.items() if verb in READS)

    @property
    def watches(self) -> int:
        """Watches that were opened. Each of them ends after some minutes."""
        return sum(count for (verb, _), count in self.calls.items() if verb == "watch")

    @property
    def writes(self) -> Counter[str]:
        """Verbs and resources of writes, except for the Lease by which it leads."""
        return Counter(
            {
                f"{verb} {resource}": count
                for (verb, resource), count in self.calls.items()
                if verb not in (*READS, "watch") and resource != "leases"
            }
        )


@dataclass(frozen=True)
class ManyFlows:
    """Figures of many flows."""

    flows: int
    tasks: int
    ready_s: Sequence[float]
    """Seconds from the apply of each flow until it was Ready."""
    windows: dict[str, Seen]


@dataclass(frozen=True)
class Loss:
    """The loss of a driver; seconds from its loss."""

    variant: str
    had_connector: bool
    units: int
    detected_s: float
    """Seconds until the first of its units was assigned to another driver."""
    claimed_s: float
    """Seconds until the last of its units was claimed."""
    beyond: int
    """Other units that moved."""
    filled: int
    """Units that were assigned to the lost driver's replacement."""


@dataclass(frozen=True)
class Restart:
    """One outage of the API server; seconds from when it was ready again."""

    how: str
    away_s: float
    unit_s: float
    """Seconds until the operator answered a request on a unit, which it watches separately."""
    flow_s: float
    """Seconds until it also answered a request on the flow, which it sees by another watch."""
    moved: int
    claims: int


@dataclass(frozen=True)
class OneFlow:
    """Figures of one large flow."""

    tasks: int
    drivers: int
    ready_s: float
    windows: dict[str, Seen]
    losses: Sequence[Loss]
    restarts: Sequence[Restart]
