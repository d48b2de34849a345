"""An account of every record of one partition, with a reason for each repeated copy. Pure.

No record may be repeated: the batch mover fences, and compares. If one is, this module says why a
mover without a fence would have repeated it: an owner took over at or below it, from a driver that
was killed or frozen, or a lane was renewed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from soak.faults import Fault, FaultKind

CLOCK_S = 0.05
"""Brokers and drivers share a clock, but stamp in milliseconds, and a batch when it is complete."""
THAW_S = 10.0
"""Longest time after a thaw until the requests arrive that the driver had queued before."""
RENEWAL_S = 60.0
"""Longest time until the records arrive that a resumed task reads again.

Brokers may be unreachable.
"""

LOST = "driver lost"
UNIT_TAKEN = "driver did not release its unit in time, the unit is taken"
PARTITION_TAKEN = "partition taken from a task that did not release it in time"
STOPPED = "stopped: not ours any more"
"""Event of a task that lost one partition and therefore stops all of its partitions."""
COPYING = "copying"
UNANSWERED = "released without an answer of the target: these records may come twice"
"""Explanation: an unreachable broker may have appended the requests of the owner before."""
UNSTORED = "released before its progress was stored: records may come twice"
TAKEN = (LOST, UNIT_TAKEN, PARTITION_TAKEN, STOPPED, UNANSWERED, UNSTORED)
"""Events of the log that name an owner which lost a unit or a partition."""
RETRYING = "retrying"
RENEWALS = (RETRYING, "stalled: checking the claim", "secrets changed: new clients")
"""Events of the log that renew a lane.

A task that renews its lane also drops records that wait to be sent again. Records that had been
written without an answer are therefore written twice.
"""

_PAST_LEASE = (FaultKind.DRIVER_KILLED, FaultKind.DRIVER_FROZEN)
_FROZEN = (FaultKind.DRIVER_FROZEN, FaultKind.DRIVER_STALLED)


@dataclass(frozen=True)
class Arrival:
    """A record on the target."""

    target_offset: int
    source_offset: int
    at_s: float
    """Time at which the broker appended it, in Unix seconds."""


@dataclass(frozen=True)
class Stored:
    """A record of progress."""

    at_s: float
    """Unix seconds."""
    task: str
    driver: str
    """Driver as ``<name>/<incarnation>``."""
    epoch: int
    source_offset: int
    """The next one to copy."""
    target_offset: int = 0
    """Target offset after the last acknowledged record."""
    writer: tuple[int, int] | None = None
    """Producer id and epoch of the owner."""
    fencing: bool = False
    """Whether this is the claim of an unfinished take-over."""


@dataclass(frozen=True)
class Logged:
    """A line of a driver's or of the herder's log that can explain a repeat."""

    at_s: float
    event: str
    task: str = ""
    driver: str = ""
    """Name of the task, if the herder logged it."""
    partition: str = ""
    """Partition as ``<topic>-<partition>``, if the connector logged it."""
    why: str = ""


@dataclass(frozen=True)
class TakeOver:
    """A change of owner: progress counts as stored, without later acknowledgements."""

    at_s: float
    stored: int
    acknowledged: int
    """Source offset after the last record that the target had acknowledged by then."""
    before: Stored
    """The last of the owner before."""
    since_s: float
    """Time at which the owner before had taken over."""


@dataclass(frozen=True)
class Repeat:
    """A copy of a record that was already on the target."""

    arrival: Arrival
    why: str
    """Empty: nothing explains it."""
    fault: Fault | None = None
    """The kill or thaw that explains it."""


@dataclass(frozen=True)
class Account:
    """Account of one partition."""

    name: str
    records: int
    """Records on the source."""
    missing: Sequence[tuple[int, int]] = ()
    """Ranges of source offsets, both ends included."""
    missing_at: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Arrival times of a range's neighbours in Unix seconds, by the first offset of the range."""
    reordered: Sequence[Arrival] = ()
    """First arrivals after a later record."""
    repeats: Sequence[Repeat] = ()
    foreign: int = 0
    """Records on the target that do not exist on the source."""
    behind: int = 0
    """Records at the end of the source that are not missing, but were not copied yet."""

    @property
    def missing_count(self) -> int:
        """Number of missing records."""
        return sum(last - first + 1 for first, last in self.missing)

    @property
    def unexplained(self) -> list[Repeat]:
        """Repeats that no kill, thaw or renewal explains."""
        return [repeat for repeat in self.repeats if not repeat.why]


def account(
    name: str,
    source: Sequence[int],
    target: Sequence[Arrival],
    *,
    progress: Sequence[Stored],
    faults: Sequence[Fault],
    log: Sequence[Logged],
    caught_up: bool = True,
) -> Account:
    """Return the account of one partition.

    ``caught_up`` is whether the flow reported that it had copied all records. If it did not,
    records after the last copy are not missing.

    ``source`` contains the existing offsets. ``target`` and ``progress`` are in the order of their
    logs. Arrivals with a negative source offset are records that the source lacks.
    """
    ours = [arrival for arrival in target if arrival.source_offset >= 0]
    firsts = _first_arrivals(ours)
    absent = [offset for offset in source if offset not in firsts]
    end = max(firsts, default=-1)
    behind = [] if caught_up else [offset for offset in absent if offset > end]
    missing = list(_ranges(absent[: len(absent) - len(behind)]))
    explain = _Explanation(name, ours, progress, faults, log)
    return Account(
        name,
        len(source),
        missing,
        {first: _neighbours(firsts, first, last) for first, last in missing},
        list(_out_of_order(firsts.values())),
        [
            explain.repeat(arrival)
            for arrival in ours
            if firsts[arrival.source_offset] is not arrival
        ],
        len(target) - len(ours),
        len(behind),
    )


def take_overs(progress: Sequence[Stored], target: Sequence[Arrival]) -> list[TakeOver]:
    """Return all changes of the owner or of its epoch, without late writes of earlier owners."""
    valid: list[Stored] = []
    for stored in progress:
        if not valid or stored.epoch >= valid[-1].epoch:
            valid.append(stored)
    found = []
    since_s = valid[0].at_s if valid else 0.0
    for before, by in pairwise(valid):
        if (before.task, before.driver, before.epoch) != (by.task, by.driver, by.epoch):
            ends = [a.source_offset + 1 for a in target if a.at_s <= by.at_s + CLOCK_S]
            found.append(TakeOver(by.at_s, by.source_offset, max(ends, default=0), before, since_s))
            since_s = by.at_s
    return found


class _Explanation:
    """Explanation of the repeats of one partition, in the order of their arrival."""

    def __init__(
        self,
        name: str,
        target: Sequence[Arrival],
        progress: Sequence[Stored],
        faults: Sequence[Fault],
        log: Sequence[Logged],
    ) -> None:
        self._name, self._progress = name, progress
        self._take_overs = take_overs(progress, target)
        self._faults, self._log = faults, log
        self._arrivals: dict[int, list[Arrival]] = defaultdict(list)
        for arrival in target:
            self._arrivals[arrival.source_offset].append(arrival)
        self._used: set[tuple[int, float]] = set()
        """Source offset, and when a renewal was: each repeats a record once."""

    def repeat(self, arrival: Arrival) -> Repeat:
        """Why a record arrived again."""
        for take_over in self._take_overs_before(arrival):
            if (fault := self._loss_of(take_over)) is not None:
                return Repeat(arrival, f"{fault}: {_range(take_over)}", fault)
            if why := self._logged_loss(take_over):
                return Repeat(arrival, f"{why}: {_range(take_over)}")
        if (fault := self._thaw(arrival)) is not None:
            return Repeat(arrival, f"{fault}: written when it thawed", fault)
        return Repeat(arrival, self._renewal(arrival))

    def _take_overs_before(self, arrival: Arrival) -> Iterator[TakeOver]:
        """Yield the take-overs after the copy before this one.

        The first of them is from the owner that wrote that copy. The others did not get as far, and
        need no explanation.
        """
        offset = arrival.source_offset
        before = [a for a in self._arrivals[offset] if a.target_offset < arrival.target_offset][-1]
        since = [
            take_over
            for take_over in self._take_overs
            if before.at_s - CLOCK_S <= take_over.at_s <= arrival.at_s + CLOCK_S
        ]
        first_at_s = max(before.at_s, since[0].at_s) + CLOCK_S if since else 0.0
        for take_over in since:
            covered = take_over.stored <= offset < take_over.acknowledged
            if covered and take_over.at_s <= first_at_s:
                yield take_over

    def _loss_of(self, take_over: TakeOver) -> Fault | None:
        """Return the kill or the freeze that cost the owner before its partition."""
        return next(
            (
                fault
                for fault in reversed(self._faults)
                if fault.kind in _PAST_LEASE
                and fault.driver == take_over.before.driver
                and fault.began_s <= take_over.at_s
                and fault.ended_s >= take_over.since_s
            ),
            None,
        )

    def _logged_loss(self, take_over: TakeOver) -> str:
        """Return the log's explanation for an owner that lost its partition without a kill.

        Its machine was too slow, or brokers did not let it store its progress.
        """
        before = take_over.before
        name = before.driver.partition("/")[0]
        for line in self._log:
            if line.event not in TAKEN:
                continue
            meant = line.task in ("", before.task)
            meant &= line.partition == self._name if line.partition else line.driver in ("", name)
            if meant and take_over.since_s - CLOCK_S <= line.at_s <= take_over.at_s + CLOCK_S:
                return f"logged of {name}: {line.event}"
        return ""

    def _thaw(self, arrival: Arrival) -> Fault | None:
        """Return the freeze of an owner whose requests, or the records after them, are repeats."""
        offset = arrival.source_offset
        for fault in self._faults:
            if fault.kind not in _FROZEN:
                continue
            stored = [
                one
                for one in self._progress
                if one.driver == fault.driver and one.at_s <= fault.began_s
            ]
            if not stored or stored[-1].source_offset > offset:
                continue
            if any(
                fault.ended_s - CLOCK_S <= each.at_s <= fault.ended_s + THAW_S
                for each in self._arrivals[offset]
                if each.target_offset <= arrival.target_offset
            ):
                return fault
        return None

    def _renewal(self, arrival: Arrival) -> str:
        """Return the renewal in the owner's log whose position is before this record."""
        for line in reversed(self._log):
            if line.event not in RENEWALS or not self._soon(line, arrival.at_s):
                continue
            if (arrival.source_offset, line.at_s) in self._used:
                continue
            stored = [one for one in self._progress if one.at_s <= line.at_s]
            if (
                stored
                and stored[-1].task == line.task
                and stored[-1].source_offset <= arrival.source_offset
            ):
                self._used.add((arrival.source_offset, line.at_s))
                said = f" ({line.why})" if line.why else ""
                return f"{line.task} logged: {line.event}{said}"
        return ""

    def _soon(self, line: Logged, at_s: float) -> bool:
        """Return whether that is soon after the task copied again, as that line made it."""
        resumed_s = next(
            (
                one.at_s
                for one in self._log
                if one.event == COPYING and one.task == line.task and one.at_s >= line.at_s
            ),
            line.at_s,
        )
        return line.at_s - CLOCK_S <= at_s <= resumed_s + RENEWAL_S


def _range(take_over: TakeOver) -> str:
    return f"stored {take_over.stored}, acknowledged {take_over.acknowledged}"


def _first_arrivals(target: Sequence[Arrival]) -> dict[int, Arrival]:
    firsts: dict[int, Arrival] = {}
    for arrival in target:
        firsts.setdefault(arrival.source_offset, arrival)
    return firsts


def _out_of_order(firsts: Iterable[Arrival]) -> Iterator[Arrival]:
    highest = -1
    for arrival in firsts:
        if arrival.source_offset < highest:
            yield arrival
        highest = max(highest, arrival.source_offset)


def _ranges(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = previous = None
    for offset in offsets:
        if first is None or previous is None:
            first = offset
        elif offset != previous + 1:
            yield first, previous
            first = offset
        previous = offset
    if first is not None and previous is not None:
        yield first, previous


def _neighbours(firsts: Mapping[int, Arrival], first: int, last: int) -> tuple[float, float]:
    """Return when the records before and after a gap arrived.

    If one of them does not exist, the other one counts.
    """
    before = [a.at_s for offset, a in firsts.items() if offset < first]
    behind = [a.at_s for offset, a in firsts.items() if offset > last]
    return (before or behind or [0.0])[-1], (behind or before[-1:] or [0.0])[0]
