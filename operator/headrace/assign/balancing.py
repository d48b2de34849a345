"""Moves that balance the numbers and the weights of the drivers' tasks."""

from heapq import heapify, heappop, heappush

from headrace.assign.assignor import TaskInfo
from headrace.assign.draft import Balance, group


def even_counts(balance: Balance) -> None:
    """Move tasks from drivers with too many tasks to drivers with too few.

    The giving driver with the highest load gives first, and the receiving driver with the lowest
    load receives first.
    """
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
            continue  # No task of this donor may move.
        heappop(receivers)
        balance.move(chosen, donor, receiver)
        gives[donor] -= 1
        takes[receiver] -= 1
        if gives[donor]:
            heappush(donors, (-loads[donor], donor))
        if takes[receiver]:
            heappush(receivers, (loads[receiver], receiver))


def _imbalance(balance: Balance) -> tuple[dict[int, int], dict[int, int]]:
    """Return the number of tasks that drivers must give, and that drivers must receive.

    Drivers give as many tasks in total as drivers receive.
    """
    draft, drivers = balance.draft, balance.drivers
    gives = {d: n for d in drivers if (n := draft.counts[d] - draft.most) > 0}
    takes = {d: n for d in drivers if (n := draft.least - draft.counts[d]) > 0}
    missing = sum(gives.values()) - sum(takes.values())
    # If the sums differ, drivers that may have one more or one less task compensate.
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
    """Return the best task to move by weight, standbys and spread of its kind, or None."""
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


_PARTNERS = 16
"""Number of drivers to try as the other end of a move."""
_MIN_GAIN = 0.1
"""Minimum share of the average task's weight that a move must shift.

The limit never prevents a driver from reaching the tolerance. If a driver deviates by 10 %, its
tasks deviate by 10 % on average.
"""
_MAX_SHIFT = 1.9
"""Maximum weight of a move, divided by the weight whose move would make two drivers equal.

A quotient of 2 would only exchange their loads.
"""
_WORTHWHILE = 0.75
"""Moves that miss the tolerance are undone if more than this share of a driver's excess remains."""


def even_weights(balance: Balance) -> None:
    """Move tasks until the drivers' loads are within the tolerance, the worst driver first.

    Moves that hardly improve a driver, for example because it has few heavy tasks, are undone.
    """
    done: set[int] = set()
    while True:
        off = (
            driver for driver in balance.drivers if driver not in done and balance.is_off(driver)
        )
        worst = max(off, key=lambda d: (abs(balance.excess(d)), -d), default=None)
        if worst is None:
            return
        before, moves = abs(balance.excess(worst)), balance.moves
        while balance.is_off(worst) and _relieve(balance, worst):
            pass
        in_vain = balance.is_off(worst) and abs(balance.excess(worst)) > _WORTHWHILE * before
        if in_vain and not balance.allowance.is_used_up:
            balance.undo(moves)
        done.add(worst)


def _relieve(balance: Balance, driver: int) -> bool:
    """Bring a driver closer to its share by a move or swaps. Return False if none is possible."""
    loads = balance.draft.loads
    over = balance.excess(driver) > 0
    others = [other for other in balance.drivers if (balance.excess(other) > 0) != over]
    others.sort(key=lambda other: (loads[other] if over else -loads[other], other))
    return any(
        _exchange(balance, driver, *((driver, other) if over else (other, driver)))
        for other in others[:_PARTNERS]
    )


def _exchange(balance: Balance, driver: int, heavy: int, light: int) -> bool:
    """Move one task, or swap tasks, to bring one of two drivers closer to its share.

    Return False if there was no way.
    """
    draft = balance.draft
    ideal = (draft.loads[heavy] - draft.loads[light]) / 2
    average = min(balance.fair) * len(draft.drivers) / len(draft.state.tasks)
    least, most = _MIN_GAIN * average, _MAX_SHIFT * ideal
    single = None
    if draft.counts[heavy] > draft.least and draft.counts[light] < draft.most:
        near = (i for i in balance.movable_near(heavy, ideal) if least <= i.weight <= most)
        single = min(near, key=lambda i: (abs(i.weight - ideal), i.id), default=None)
    # A single task that fits roughly is preferred, because a swap costs two moves.
    if single is None or abs(single.weight - ideal) > ideal / 2:
        pairs = _closest_pairs(balance, (heavy, light), ideal, min_shift=least, max_shift=most)
        if pairs and (single is None or _error(pairs[0], ideal) < abs(single.weight - ideal)):
            for one, other in pairs:
                if balance.is_off(driver) and balance.allowance.covers_both(one, other):
                    balance.move(one, heavy, light)
                    balance.move(other, light, heavy)
            return True
    if single:
        balance.move(single, heavy, light)
    return single is not None


_Pair = tuple[TaskInfo, TaskInfo]


def _error(pair: _Pair, ideal: float) -> float:
    return abs(pair[0].weight - pair[1].weight - ideal)


def _closest_pairs(
    balance: Balance, drivers: tuple[int, int], ideal: float, *, min_shift: float, max_shift: float
) -> list[_Pair]:
    """Return pairs of tasks to swap whose weights differ by about ``ideal``.

    If the largest difference is much too small, return several pairs that reach it together. Each
    list is read once.
    """
    allowance = balance.allowance
    gone, come = (allowance.movable(balance.draft.tasks_by_weight(driver)) for driver in drivers)
    best: tuple[int, int] | None = None
    least_error = ideal
    place = 0
    for number, (weight, one) in enumerate(gone):
        while place < len(come) and come[place][0] < weight - ideal:
            place += 1
        for near in range(max(0, place - 1), min(place + 1, len(come))):
            other_weight, other = come[near]
            shift = weight - other_weight
            error = abs(shift - ideal)
            if (
                error < least_error
                and min_shift <= shift <= max_shift
                and allowance.covers_both(one, other)
            ):
                best, least_error = (number, near), error
    if best is None:
        return []
    pairs: list[_Pair] = []
    for (weight, one), (other_weight, other) in zip(
        reversed(gone[: best[0] + 1]), come[best[1] :], strict=False
    ):
        shift = weight - other_weight
        if pairs and not min_shift <= shift <= ideal:
            break
        pairs.append((one, other))
        ideal -= shift
    return pairs
