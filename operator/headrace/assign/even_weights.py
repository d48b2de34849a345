"""Weights within the tolerance, as far as moves are worth it."""

from headrace.assign.balance import Balance
from headrace.assign.state import TaskInfo

_PARTNERS = 16
"""Drivers that are tried as the other end of a move before one gives a driver up."""
_LEAST_GAIN = 0.1
"""Of the average task's weight: a shift of less is not worth a move. It never stands between a
driver and the tolerance: one that is 10 % off has tasks that are, on average, 10 % off."""
_MOST_SHIFT = 1.9
"""Of what would make two drivers equal. Twice that would just exchange their loads."""
_WORTHWHILE = 0.75
"""What may be left of a driver's excess after moves that do not bring it into the tolerance."""


def even_weights(balance: Balance) -> None:
    """Bring drivers that are off into the tolerance, the worst first.

    What cannot be brought much closer to it (few heavy tasks fit no better) stays as it is.
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
    """A move or some swaps that take a driver closer to its share; whether there was a way."""
    loads = balance.draft.loads
    over = balance.excess(driver) > 0
    others = [other for other in balance.drivers if (balance.excess(other) > 0) != over]
    others.sort(key=lambda other: (loads[other] if over else -loads[other], other))
    return any(
        _exchange(balance, driver, *((driver, other) if over else (other, driver)))
        for other in others[:_PARTNERS]
    )


def _exchange(balance: Balance, driver: int, heavy: int, light: int) -> bool:
    """Move one task, or swap some, for the sake of one of two drivers; whether there was a way."""
    draft = balance.draft
    ideal = (draft.loads[heavy] - draft.loads[light]) / 2
    average = min(balance.fair) * len(draft.drivers) / len(draft.state.tasks)
    least, most = _LEAST_GAIN * average, _MOST_SHIFT * ideal
    single = None
    if draft.counts[heavy] > draft.least and draft.counts[light] < draft.most:
        near = (i for i in balance.movable_near(heavy, ideal) if least <= i.weight <= most)
        single = min(near, key=lambda i: (abs(i.weight - ideal), i.id), default=None)
    # Good enough is good enough: a swap would cost two moves.
    if single is None or abs(single.weight - ideal) > ideal / 2:
        pairs = _closest_pairs(balance, (heavy, light), ideal, least=least, most=most)
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
    balance: Balance, drivers: tuple[int, int], ideal: float, *, least: float, most: float
) -> list[_Pair]:
    """Two tasks to swap whose weights differ by about ``ideal``; one pass over both shelves.

    Where the largest difference is far too small, as many as make up for it.
    """
    allowance = balance.allowance
    gone, come = (allowance.movable(balance.draft.shelf(driver)) for driver in drivers)
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
            if error < least_error and least <= shift <= most and allowance.covers_both(one, other):
                best, least_error = (number, near), error
    if best is None:
        return []
    pairs: list[_Pair] = []
    for (weight, one), (other_weight, other) in zip(
        reversed(gone[: best[0] + 1]), come[best[1] :], strict=False
    ):
        shift = weight - other_weight
        if pairs and not least <= shift <= ideal:
            break
        pairs.append((one, other))
        ideal -= shift
    return pairs
