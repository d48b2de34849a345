"""The optimisation of traffic finds the same result as an exhaustive search."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from headrace.assign.rack_aware import solve_min_cost_flow


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), max_size=5), st.data())
def test_a_flow_of_minimal_cost_is_minimal(costs: list[list[int]], data: st.DataObject) -> None:
    start = [data.draw(st.integers(0, 2)) for _ in costs]
    bins = [[item for item, at in enumerate(start) if at == number] for number in range(3)]
    dealt = solve_min_cost_flow(bins, lambda item, there, here: costs[item][there])
    assert [len(items) for items in dealt] == [len(items) for items in bins]
    assert sorted(item for items in dealt for item in items) == list(range(len(costs)))
    total = sum(costs[item][number] for number, items in enumerate(dealt) for item in items)
    assert total == min(
        sum(costs[item][number] for item, number in enumerate(order))
        for order in set(permutations(start))
    )
