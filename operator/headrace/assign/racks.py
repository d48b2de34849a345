"""Moves that spread each flow over the racks, within the bounds of balance."""

from collections import Counter
from collections.abc import Iterator
from math import ceil

from headrace.assign.balance import Balance
from headrace.assign.state import TaskInfo

_DRIVERS = 8
"""Drivers of a rack that are tried, on either side."""


class RackSpread:
    """No rack holds more of a flow than its share, the tolerance or rounding up left aside."""

    def __init__(self, balance: Balance, racks: list[str]) -> None:
        self.balance = balance
        self.draft = balance.draft
        self.racks = racks
        self._in_rack: dict[str, list[int]] = {}
        for driver, rack in enumerate(racks):
            self._in_rack.setdefault(rack, []).append(driver)
        self._held: dict[str, Counter[str]] = {}
        """By flow and rack."""
        for driver, rack in enumerate(racks):
            for (flow, _), count in self.draft.groups(driver).items():
                self._held.setdefault(flow, Counter())[rack] += count
        tolerance = 1 + self.draft.state.config.tolerance
        self._most: dict[tuple[str, str], int] = {}
        for flow, held in self._held.items():
            for rack, drivers in self._in_rack.items():
                share = held.total() * len(drivers) / len(racks)
                self._most[flow, rack] = max(ceil(share - 1e-9), int(share * tolerance))

    @property
    def is_reached(self) -> bool:
        """Whether no rack holds too much of any flow."""
        return next(self._crowded(), None) is None

    def spread(self) -> None:
        """Move or swap tasks out of racks that hold too much of a flow."""
        stuck: set[tuple[str, str]] = set()
        while crowded := next((c for c in self._crowded() if c not in stuck), None):
            if not self._relieve(*crowded):
                stuck.add(crowded)

    def _crowded(self) -> Iterator[tuple[str, str]]:
        for flow, rack in sorted(self._most):
            if self._held[flow][rack] > self._most[flow, rack]:
                yield flow, rack

    def _relieve(self, flow: str, rack: str) -> bool:
        """Take one task of a flow out of a rack; whether there was a way."""
        loads = self.draft.loads
        held = self._held[flow]
        donors = [
            driver
            for driver in sorted(self._in_rack[rack], key=lambda d: (-loads[d], d))
            if any(kind[0] == flow for kind in +self.draft.groups(driver))
        ]
        roomy = [other for other in self._in_rack if held[other] < self._most[flow, other]]
        for other in sorted(roomy, key=lambda r: (held[r] / len(self._in_rack[r]), r)):
            receivers = sorted(self._in_rack[other], key=lambda d: (loads[d], d))
            for donor in donors[:_DRIVERS]:
                for receiver in receivers[:_DRIVERS]:
                    if self._exchange(flow, donor, receiver):
                        return True
        return False

    def _exchange(self, flow: str, donor: int, receiver: int) -> bool:
        """Move a task of ``flow``, or swap it for one of another flow; whether there was a way."""
        draft, allowance = self.draft, self.balance.allowance
        gone = [
            info
            for _, info in draft.shelf(donor)
            if info.id.flow == flow and allowance.covers(info)
        ]
        if draft.counts[donor] > draft.least and draft.counts[receiver] < draft.most:
            middle = (draft.loads[donor] - draft.loads[receiver]) / 2
            fits = (i for i in gone if self.balance.stays_even(donor, receiver, i.weight))
            single = min(fits, key=lambda i: (abs(i.weight - middle), i.id), default=None)
            if single:
                self.move(single, donor, receiver)
                return True
        back = self.racks[donor]
        come = [
            info
            for _, info in draft.shelf(receiver)
            if info.id.flow != flow
            and self._held[info.id.flow][back] < self._most[info.id.flow, back]
            and allowance.covers(info)
        ]
        pair = min(
            ((one, other) for one in gone for other in come if allowance.covers_both(one, other)),
            key=lambda two: (abs(two[0].weight - two[1].weight), two[0].id, two[1].id),
            default=None,
        )
        if pair is None or not self.balance.stays_even(
            donor, receiver, pair[0].weight - pair[1].weight
        ):
            return False
        self.move(pair[0], donor, receiver)
        self.move(pair[1], receiver, donor)
        return True

    def takes(self, info: TaskInfo, source: int, target: int) -> bool:
        """Whether a task may move there without its rack holding too much of the flow."""
        flow, rack = info.id.flow, self.racks[target]
        return rack == self.racks[source] or self._held[flow][rack] < self._most[flow, rack]

    def move(self, info: TaskInfo, source: int, target: int) -> None:
        """Move a task, and count it."""
        self.balance.move(info, source, target)
        self._held[info.id.flow][self.racks[source]] -= 1
        self._held[info.id.flow][self.racks[target]] += 1
