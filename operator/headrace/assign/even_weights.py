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
    """One move or one swap that takes a driver closer to its share; whether there was one."""
    loads = balance.plan.loads
    over = balance.excess(driver) > 0
    others = [other for other in balance.drivers if (balance.excess(other) > 0) != over]
    others.sort(key=lambda other: (loads[other] if over else -loads[other], other))
    for other in others[:_PARTNERS]:
        heavy, light = (driver, other) if over else (other, driver)
        if exchange := _exchange(balance, heavy, light):
            gone, come = exchange
            balance.move(gone, heavy, light)
            if come:
                balance.move(come, light, heavy)
            return True
    return False


def _exchange(balance: Balance, heavy: int, light: int) -> tuple[TaskInfo, TaskInfo | None] | None:
    """What to move, or to swap, so that two drivers come closest to each other."""
    plan = balance.plan
    ideal = (plan.loads[heavy] - plan.loads[light]) / (
        1 / plan.capacities[heavy] + 1 / plan.capacities[light]
    )
    average = min(balance.fair) * sum(plan.capacities) / len(plan.state.tasks)
    least, most = _LEAST_GAIN * average, _MOST_SHIFT * ideal
    single = None
    if plan.counts[heavy] > plan.least[heavy] and plan.counts[light] < plan.most[light]:
        near = (i for i in balance.movable_near(heavy, ideal) if least <= i.weight <= most)
        single = min(near, key=lambda i: (abs(i.weight - ideal), i.id), default=None)
        if single and abs(single.weight - ideal) <= ideal / 2:
            return single, None  # Good enough; a swap would cost two moves.
    pair = _closest_pair(balance, (heavy, light), ideal, least=least, most=most)
    if pair:
        one, other = pair
        if single is None or abs(one.weight - other.weight - ideal) < abs(single.weight - ideal):
            return pair
    return (single, None) if single else None


def _closest_pair(
    balance: Balance, drivers: tuple[int, int], ideal: float, *, least: float, most: float
) -> tuple[TaskInfo, TaskInfo] | None:
    """Two tasks to swap whose weights differ by about ``ideal``; one pass over both shelves."""
    allowance = balance.allowance
    gone, come = (
        [item for item in balance.plan.shelf(driver) if allowance.covers(item[1])]
        for driver in drivers
    )
    best: tuple[TaskInfo, TaskInfo] | None = None
    least_error = ideal
    place = 0
    for weight, one in gone:
        while place < len(come) and come[place][0] < weight - ideal:
            place += 1
        for other_weight, other in come[max(0, place - 1) : place + 1]:
            shift = weight - other_weight
            error = abs(shift - ideal)
            if error < least_error and least <= shift <= most and allowance.covers_both(one, other):
                best, least_error = (one, other), error
    return best
