"""Guarantees of a source task over the random schedules of ``source_schedules``."""

import pytest
from property.source_schedules import Schedule

MORE = [pytest.param(ten, marks=pytest.mark.long) for ten in range(1, 50)]


@pytest.mark.parametrize("ten", [0, *MORE])
def test_what_is_stored_is_on_the_target_in_order_and_nothing_is_skipped(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        try:
            Schedule(seed).run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
