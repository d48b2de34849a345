"""How tests wait."""

import time
from collections.abc import Callable

import pytest
from hypothesis import settings

LOOK_EVERY_S = 0.1

# A machine that others use too stands still now and then: how long an example takes is no finding.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., object]:
    """``wait_until(look, within_s=10, until=bool)``: look until it is so; what was seen then."""

    def wait(
        look: Callable[[], object],
        *,
        within_s: float,
        until: Callable[[object], bool] = bool,
        every_s: float = LOOK_EVERY_S,
    ) -> object:
        deadline = time.monotonic() + within_s
        while not until(seen := look()):
            if time.monotonic() > deadline:
                pytest.fail(f"not so within {within_s} s; last seen: {seen!r}")
            time.sleep(every_s)
        return seen

    return wait
