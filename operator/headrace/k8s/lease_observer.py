"""Which Leases are expired: pure logic over what was observed, and when.

Time is the *observer's* monotonic clock only: a Lease expires when its renewTime did not change for
its duration while it was watched. So wall clocks may differ and jump, and an observer that begins,
or that could not read, first watches for a full duration.

That is not enough when the API server itself was away: it answers watches and renewals of a whole
fleet at once, and those that it answers last are as alive as the others. So after ``restart`` none
expires while others still return: only when all were renewed, or none more for a full duration,
and for as long as the last one took. The same when the observer begins, as it may have ended with
the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

Name = tuple[str, str]
"""Namespace and name of a Lease."""


_LONGEST_RETURN = 10
"""Durations after a restart, when Leases are judged though others still return."""
_UNKNOWN_S = 6.0
"""Of a Lease that declares no duration, and that nobody expects."""


class LeaseView(NamedTuple):
    """What of a Lease the observer compares."""

    holder: str
    """holderIdentity; a driver's is ``<pod>/<incarnation>``."""
    renew_time: str
    """Compared, never read as a time."""
    duration_s: float
    """leaseDurationSeconds; 0 when the Lease declares none."""


@dataclass
class _Watched:
    view: LeaseView | None
    since: float
    """When it changed last, or the observation began."""
    duration_s: float
    declared: bool = False
    """Whether the Lease gave the duration, now or before it was deleted."""
    repeated: bool = False
    """Whether this is the observation after one that was judged blind."""
    expired: bool = False
    renewed: bool = False
    """Whether it changed while observed: the holder of one that never did may be dead."""


class LeaseObserver:
    """All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._watched: dict[Name, _Watched] = {}
        self._expected: dict[Name, float] = {}
        self._returning: set[Name] = set()
        """Not renewed since the restart."""
        self._restarted = self._returned = 0.0
        """When that was, and when one of them was renewed last."""

    def expect(self, durations_s: Mapping[Name, float], now: float) -> None:
        """All that should have a Lease, with the duration that its owner was asked for: one that
        is missing expires after that. One that was there keeps the duration that it had."""
        self._expected = dict(durations_s)
        for name, watched in list(self._watched.items()):
            if watched.view is None and name not in self._expected:
                del self._watched[name]
        for name, duration_s in durations_s.items():
            watched = self._watched.setdefault(name, _Watched(None, now, duration_s))
            if not watched.declared:
                watched.duration_s = duration_s

    def observe(self, name: Name, lease: LeaseView | None, now: float) -> None:
        """A Lease as it is, ``None`` when it is deleted; repeats are welcome."""
        if lease is None and name not in self._expected:
            self._watched.pop(name, None)
            self._returning.discard(name)
            return
        watched = self._watched.get(name)
        if watched is not None and watched.view == lease:
            return
        if name in self._returning:
            self._returning.remove(name)
            self._returned = now
        declared = lease is not None and lease.duration_s > 0
        if lease is not None and declared:
            duration_s = lease.duration_s
        elif watched is not None:
            # Deleted: whoever holds it renews when the duration that it knew asks for it.
            duration_s, declared = watched.duration_s, watched.declared
        else:
            duration_s = self._expected.get(name, _UNKNOWN_S)
        renewed = watched is not None and lease is not None
        self._watched[name] = _Watched(lease, now, duration_s, declared, renewed=renewed)

    def restart(self, now: float) -> bool:
        """The observer was blind: what it observed before says nothing about who lives now.
        Whether ``renewed`` changed for any Lease."""
        changed = any(watched.renewed and not watched.expired for watched in self._watched.values())
        for watched in self._watched.values():
            if not watched.expired:
                watched.since, watched.repeated, watched.renewed = now, False, False
        self.begin(now)
        return changed

    def begin(self, now: float) -> None:
        """All Leases were read, and the watch begins: some may have been renewed already."""
        self._returning = {
            name
            for name, one in self._watched.items()
            if one.view is not None and not one.expired and not one.renewed
        }
        self._restarted = self._returned = now

    @property
    def expired(self) -> frozenset[Name]:
        """Those that were judged expired and were not renewed since."""
        return frozenset(name for name, watched in self._watched.items() if watched.expired)

    def is_expired(self, name: Name) -> bool:
        """Whether it is among ``expired``, in constant time."""
        watched = self._watched.get(name)
        return watched is not None and watched.expired

    def renewed(self, name: Name) -> bool:
        """Whether it was renewed since the observation began: its holder lives."""
        watched = self._watched.get(name)
        return watched is not None and watched.renewed

    def holder(self, name: Name) -> str:
        """holderIdentity of a Lease; empty when there is none."""
        watched = self._watched.get(name)
        return watched.view.holder if watched and watched.view else ""

    def due(self, now: float) -> bool:
        """Whether there is anything to judge: read all Leases once more before you do."""
        return not self._others_return(now) and any(
            not watched.expired and now - watched.since >= watched.duration_s
            for watched in self._watched.values()
        )

    def judge(self, now: float) -> bool:
        """Mark as expired the Leases whose time is over. When most stop at once, the observer is
        probably blind: it marks none, observes them for one more duration, and returns true."""
        if self._others_return(now):
            return False
        alive = [watched for watched in self._watched.values() if not watched.expired]
        # Two renewals missed: an observer goes blind for all at one moment, but the Leases run out
        # one by one, as they were renewed.
        silent = [w for w in alive if now - w.since >= w.duration_s * 2 / 3]
        due = [w for w in silent if now - w.since >= w.duration_s]
        most = len(silent) > 1 and 2 * len(silent) > len(alive)
        blind = most and bool(due) and not all(w.repeated for w in due)
        for watched in silent if blind else due:
            if blind:
                watched.since, watched.repeated = now, True
            else:
                watched.expired = True
        return blind

    def _others_return(self, now: float) -> bool:
        """Whether the API server still takes the first renewals after a restart."""
        if not self._returning:
            return False
        duration_s = max(self._watched[name].duration_s for name in self._returning)
        silence_s = max(duration_s, self._returned - self._restarted)
        return (
            now - self._returned < silence_s
            and now - self._restarted < _LONGEST_RETURN * duration_s
        )
