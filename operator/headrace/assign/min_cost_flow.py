"""The cheapest way to deal items among bins that keep their counts.

A minimum-cost flow in which every item is one unit, drawn between bins only: an arc from one bin to
another stands for the item that is cheapest to carry over. As in Kafka Streams' ``Graph``, one
starts with what is and cancels circles of negative cost; without one left, the flow is minimal.
What costs the same stays where it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")

Cost = Callable[[Item, int, int], int | None]
"""What an item costs in the first bin, when it lies in the second; None where it must not go."""

_Arc = tuple[int, int]
"""How much more it costs, and the place of the item in its bin."""


Carried = Callable[[Item, int, int], Iterable[int]]
"""Called with an item, from where and to where it went; returns the bins whose costs it changed."""


def cheapest(
    bins: Sequence[Sequence[Item]],
    cost: Cost[Item],
    carried: Carried[Item] = lambda item, source, target: (),
) -> list[list[Item]]:
    """The items of each bin at the lowest total cost; bins keep their counts.

    A circle takes O(bins³), and there are at most as many circles as units of cost to be saved.
    An item must be allowed where it is.
    """
    dealt = [list(items) for items in bins]
    arcs = [_arcs(items, here, len(dealt), cost) for here, items in enumerate(dealt)]
    while circle := _negative_circle(arcs):
        items = {source: dealt[source].pop(arcs[source][target][1]) for source, target in circle}
        changed = set(items)
        for source, target in circle:
            dealt[target].append(items[source])
            changed.update(carried(items[source], source, target))
        for here in changed:
            arcs[here] = _arcs(dealt[here], here, len(dealt), cost)
    return dealt


def _arcs(items: Sequence[Item], here: int, bins: int, cost: Cost[Item]) -> dict[int, _Arc]:
    """For each other bin that one may go to, the item that is cheapest to carry there."""
    cheapest: dict[int, _Arc] = {}
    for place, item in enumerate(items):
        now = cost(item, here, here)
        assert now is not None, "an item lies where it must not"
        for there in range(bins):
            then = cost(item, there, here) if there != here else None
            if then is not None and (there not in cheapest or then - now < cheapest[there][0]):
                cheapest[there] = then - now, place
    return cheapest


def _negative_circle(arcs: Sequence[Mapping[int, _Arc]]) -> list[tuple[int, int]]:
    """Arcs of a circle of negative cost (Bellman and Ford); empty when there is none."""
    distance = [0] * len(arcs)
    before = [-1] * len(arcs)
    last = -1
    for _ in arcs:
        last = -1
        for source, to in enumerate(arcs):
            for target, (cost, _) in to.items():
                if distance[source] + cost < distance[target]:
                    distance[target] = distance[source] + cost
                    before[target] = source
                    last = target
        if last < 0:
            return []
    for _ in arcs:  # Back from the last change for long enough to be on the circle itself.
        last = before[last]
    circle = [(before[last], last)]
    while circle[-1][0] != last:
        circle.append((before[circle[-1][0]], circle[-1][0]))
    return circle
