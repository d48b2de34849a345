"""Counts within one: the fewest moves there are."""

from heapq import heapify, heappop, heappush

from headrace.assign.balance import Balance
from headrace.assign.draft import group
from headrace.assign.state import TaskInfo


def even_counts(balance: Balance) -> None:
    """Move tasks from who has too many to who has too few; from the heaviest to the lightest."""
    gives, takes = _imbalance(balance)
    loads = balance.draft.loads
    donors = [(-loads[driver], driver) for driver in gives]
    receivers = [(loads[driver], driver) for driver in takes]
    heapify(donors)
    heapify(receivers)
    while donors and receivers:
        _, donor = heappop(donors)
        receiver = receivers[0][1]
        excess = balance.excess(donor) / gives[donor]
        lack = -balance.excess(receiver) / takes[receiver]
        chosen = _choose(balance, donor, receiver, max(0.0, (excess + lack) / 2))
        if chosen is None:
            continue  # Nothing of this donor may move.
        heappop(receivers)
        balance.move(chosen, donor, receiver)
        gives[donor] -= 1
        takes[receiver] -= 1
        if gives[donor]:
            heappush(donors, (-loads[donor], donor))
        if takes[receiver]:
            heappush(receivers, (loads[receiver], receiver))


def _imbalance(balance: Balance) -> tuple[dict[int, int], dict[int, int]]:
    """How many tasks each driver has to give, and how many each is to get: equal sums."""
    draft, drivers = balance.draft, balance.drivers
    gives = {d: n for d in drivers if (n := draft.counts[d] - draft.most) > 0}
    takes = {d: n for d in drivers if (n := draft.least - draft.counts[d]) > 0}
    missing = sum(gives.values()) - sum(takes.values())
    # Where the sums differ, those make up for it who may have one more, or one less.
    if missing > 0:
        may = [d for d in drivers if draft.counts[d] < draft.most]
        for driver in sorted(may, key=lambda d: (draft.loads[d], d))[:missing]:
            takes[driver] = takes.get(driver, 0) + 1
    elif missing < 0:
        may = [d for d in drivers if draft.counts[d] > draft.least]
        for driver in sorted(may, key=lambda d: (-draft.loads[d], d))[:-missing]:
            gives[driver] = gives.get(driver, 0) + 1
    return gives, takes


def _choose(balance: Balance, donor: int, receiver: int, weight: float) -> TaskInfo | None:
    """What to move: of about ``weight``, held restored there, of a kind that is rare there."""
    draft = balance.draft
    there = draft.drivers[receiver]
    at, here = draft.groups(receiver), draft.groups(donor)
    band = balance.tolerated(receiver) or 1.0

    def badness(info: TaskInfo) -> tuple[int, bool, int, float, TaskInfo]:
        restored = info.id in there.standby
        kind = group(info.id)
        off = abs(info.weight - weight)
        return int(off / band), not restored, at[kind] - here[kind], off, info

    return min(balance.movable_near(donor, weight), key=badness, default=None)
