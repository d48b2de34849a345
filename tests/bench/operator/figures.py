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
    """How long each took."""
    cpu_s: float
    rss: Sequence[int]
    """Bytes resident, ten times a second."""
    answers_ms: Sequence[float]
    """How long its event loop let each question for its health wait."""

    @property
    def reads(self) -> int:
        """Requests for objects and lists."""
        return sum(count for (verb, _), count in self.calls.items() if verb in READS)

    @property
    def watches(self) -> int:
        """Watches that were opened: each ends after some minutes."""
        return sum(count for (verb, _), count in self.calls.items() if verb == "watch")

    @property
    def writes(self) -> Counter[str]:
        """Verbs and resources that were written; not the Lease by which it leads."""
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
    """One driver lost; seconds from its loss."""

    variant: str
    had_connector: bool
    units: int
    detected_s: float
    """Until the first of its units was assigned elsewhere."""
    claimed_s: float
    """Until the last of them was claimed."""
    beyond: int
    """Other units that moved."""
    filled: int
    """Units that went to the driver that came in its place."""


@dataclass(frozen=True)
class Restart:
    """One outage of the API server; seconds from when it was ready again."""

    how: str
    away_s: float
    unit_s: float
    """Until the operator answered a request on a unit, which it sees by a watch of its own."""
    flow_s: float
    """Until then it also answered one on the flow, which it sees by another watch."""
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
