"""Steps in a pool that the test runs."""

import pytest
from support.fake_kafka import FakeClock
from support.source_tasks import ManualPool

from headrace.connect.runtime.background import BackgroundStep


@pytest.fixture
def pool() -> ManualPool:
    return ManualPool()


@pytest.fixture
def steps(pool: ManualPool) -> BackgroundStep[str]:
    return BackgroundStep(pool, FakeClock())


def test_outcome_of_last_step_is_taken(steps: BackgroundStep[str], pool: ManualPool) -> None:
    steps.start(lambda: "first")
    steps.start(lambda: "second")
    pool.run()
    assert steps.take() == "second"
    assert steps.due
    assert not steps.running


def test_no_step_is_due_before_dropped_step_has_ended(
    steps: BackgroundStep[str], pool: ManualPool
) -> None:
    steps.start(lambda: "dropped")
    dropped = pool.waiting.pop()
    steps.start(lambda: "taken")
    pool.run()
    assert steps.take() == "taken"
    assert not steps.due
    assert steps.running
    pool.waiting.append(dropped)
    pool.run()
    assert steps.due
    assert not steps.running
