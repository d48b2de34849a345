"""What a source task promises, over random schedules: see ``source_schedules``."""

import pytest
from property.source_schedules import Schedule

MORE = [pytest.param(hundred, marks=pytest.mark.long) for hundred in range(1, 5)]


@pytest.mark.parametrize("hundred", [0, *MORE])
def test_what_is_stored_is_on_the_target_in_order_and_nothing_is_skipped(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        try:
            Schedule(seed).run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
