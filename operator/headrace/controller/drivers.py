"""Which drivers a flow has, who of them may get units, and which lives of them are over. Pure.

The rules for a driver that joins, leaves, restarts, rolls or falls silent. In words they stand in
docs/rebalancing.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.assign import DriverName
from headrace.controller.sight import Observation, Sight


@dataclass(frozen=True)
class DriverPod:
    """A driver pod, as far as it matters here."""

    name: DriverName
    template: str
    """Hash of the template it was made from."""
    terminating: bool = False
    """Whether it was told to go: scaled down, rolled, evicted."""
    ended: bool = False
    """Whether all its containers ended for good."""
    rack: str | None = None
    problem: str = ""
    """Why it does not run, in the words of whoever starts it; empty when it runs."""


@dataclass(frozen=True)
class Drivers:
    """The drivers of a flow."""

    taking: tuple[DriverPod, ...]
    """May get units."""
    keeping: frozenset[DriverName]
    """Keep the units that they have, and get none."""
    rolling: bool
    """Whether pods of an older template are there: nothing moves for balance meanwhile."""
    alive: int
    """How many hold their Lease, those that were told to go among them."""
    pods: Mapping[DriverName, DriverPod]
    seen: Mapping[DriverName, Observation]

    def is_lost(self, driver: DriverName, incarnation: str) -> bool:
        """Whether that life of a driver is over: its pod is gone or ended, another life of it holds
        the Lease, or the Lease expired."""
        pod, seen = self.pods.get(driver), self.seen.get(driver)
        if pod is None or pod.ended:
            return True
        if seen is None:
            return False
        return seen.lost if seen.incarnation in ("", incarnation) else True


def drivers_of(pods: Iterable[DriverPod], newest: str, sight: Sight) -> Drivers:
    """The drivers of a flow; ``newest`` is the hash of the template that its pods shall have."""
    there = {pod.name: pod for pod in pods}
    staying = [pod for pod in there.values() if not pod.terminating and not pod.ended]
    known = [pod for pod in staying if pod.name in sight.of and not sight.of[pod.name].lost]
    sure = {pod.name for pod in known if sight.of[pod.name].heard}
    rolling = any(pod.template != newest for pod in there.values() if not pod.ended)

    taking = [pod for pod in known if pod.name in sure and pod.template == newest]
    if not taking:  # what has no home goes to one that will roll too, rather than nowhere
        taking = [pod for pod in known if pod.name in sure]
    names = {pod.name for pod in taking}
    keeping = frozenset(pod.name for pod in known if pod.name not in names)
    alive = sum(one.incarnation != "" and not one.lost for one in sight.of.values())
    return Drivers(tuple(taking), keeping, rolling, alive, there, sight.of)
