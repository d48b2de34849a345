"""Who is lost, by Leases: pure logic, told what is seen and when.

Time is the *observer's* monotonic clock only: a Lease expires when its renewTime did not change for
its duration while it was watched. So wall clocks may differ and jump, and an observer that begins,
or that was away, first watches for a full duration.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

Name = tuple[str, str]
"""Namespace and name of a Lease."""


class LeaseView(NamedTuple):
    """What a Lease says."""

    holder: str
    """holderIdentity; a driver's is ``<pod>/<incarnation>``."""
    renew_time: str
    """Compared, never read as a time."""
    duration_s: float


@dataclass
class _Watched:
    view: LeaseView | None
    since: float
    """When it was seen to change, or the observation began."""
    duration_s: float
    once_more: bool = False
    """Whether this is the observation after one that was judged blind."""
    expired: bool = False
    heard: bool = False
    """Whether it was seen to change: one that was there when we began to look may be dead."""


class LeaseObserver:
    """All times are seconds of one monotonic clock."""

    def __init__(self, duration_s: float = 6.0) -> None:
        """``duration_s`` is given to those whose Lease is missing."""
        self._duration_s = duration_s
        self._watched: dict[Name, _Watched] = {}
        self._expected: frozenset[Name] = frozenset()

    def expect(self, names: Iterable[Name], now: float) -> None:
        """All that should have a Lease; one that is missing gets a full observation, too."""
        self._expected = frozenset(names)
        for name in self._expected - self._watched.keys():
            self._watched[name] = _Watched(None, now, self._duration_s)
        for name, watched in list(self._watched.items()):
            if watched.view is None and name not in self._expected:
                del self._watched[name]

    def see(self, name: Name, lease: LeaseView | None, now: float) -> None:
        """How a Lease is, ``None`` when it is deleted: told as often as one likes."""
        if lease is None and name not in self._expected:
            self._watched.pop(name, None)
            return
        watched = self._watched.get(name)
        if watched is None or watched.view != lease:
            duration_s = lease.duration_s if lease else self._duration_s
            heard = watched is not None and lease is not None
            self._watched[name] = _Watched(lease, now, duration_s, heard=heard)

    def restart(self, now: float) -> bool:
        """The observer was away: what it saw before says nothing about who lives now. Whether it
        had heard of somebody."""
        heard = any(watched.heard and not watched.expired for watched in self._watched.values())
        for watched in self._watched.values():
            if not watched.expired:
                watched.since, watched.once_more, watched.heard = now, False, False
        return heard

    @property
    def expired(self) -> frozenset[Name]:
        """Those that were judged lost, and were not seen to be renewed since."""
        return frozenset(name for name, watched in self._watched.items() if watched.expired)

    def is_expired(self, name: Name) -> bool:
        """Whether it is among ``expired``, without a look at all others."""
        watched = self._watched.get(name)
        return watched is not None and watched.expired

    def heard(self, name: Name) -> bool:
        """Whether it was seen to be renewed since the observation began: it surely lives."""
        watched = self._watched.get(name)
        return watched is not None and watched.heard

    def holder(self, name: Name) -> str:
        """holderIdentity of a Lease; empty when there is none."""
        watched = self._watched.get(name)
        return watched.view.holder if watched and watched.view else ""

    def due(self, now: float) -> bool:
        """Whether there is anything to judge: read all Leases once more before you do."""
        return any(
            not watched.expired and now - watched.since >= watched.duration_s
            for watched in self._watched.values()
        )

    def judge(self, now: float) -> bool:
        """Call lost whose time is over; unless most are silent at once (true): that says something
        about the observer, so that they are watched once more before it."""
        alive = [watched for watched in self._watched.values() if not watched.expired]
        # Two renewals missed: an observer goes blind for all at one moment, but the Leases run out
        # one by one, as they were renewed.
        silent = [w for w in alive if now - w.since >= w.duration_s * 2 / 3]
        due = [w for w in silent if now - w.since >= w.duration_s]
        together = len(silent) > 1 and 2 * len(silent) > len(alive)
        blind = together and bool(due) and not all(w.once_more for w in due)
        for watched in silent if blind else due:
            if blind:
                watched.since, watched.once_more = now, True
            else:
                watched.expired = True
        return blind
