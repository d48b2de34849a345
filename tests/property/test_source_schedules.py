"""What a source task promises, over random schedules: see ``source_schedules``."""

import pytest
from property.source_schedules import Schedule

MORE = [pytest.param(fifty, marks=pytest.mark.long) for fifty in range(1, 10)]


@pytest.mark.parametrize("fifty", [0, *MORE])
def test_what_is_stored_is_on_the_target_in_order_and_nothing_is_skipped(fifty: int) -> None:
    for seed in range(50 * fifty, 50 * fifty + 50):
        try:
            Schedule(seed).run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
