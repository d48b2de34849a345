"""How tests wait, run side by side, and share an API server."""

import time
from collections.abc import Callable

import pytest
from cluster.kubectl import KubectlError
from cluster.rest import ApiError
from confluent_kafka import KafkaException
from hypothesis import HealthCheck, settings
from support.patience import WITHIN_S
from urllib3.exceptions import HTTPError

from headrace.errors import Retriable

POLL_INTERVAL_S = 0.1
NO_ANSWER = (ApiError, HTTPError, KafkaException, KubectlError, Retriable)
"""Errors of a poll while the server starts, moves or is unreachable."""

# A busy machine may pause: the duration of an example is no finding. Every run has the same
# examples, so that a failure belongs to the change. `make check` uses the profile `quick`, and
# `make test-all LONG=1` repeats the property tests with the profile `thorough`.
for profile, examples in (("quick", 25), ("thorough", 200)):
    settings.register_profile(
        profile,
        deadline=None,
        derandomize=True,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")


pytest_plugins = ["support.shared_api_server", "support.side_by_side", "support.tiers"]


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., object]:
    """``wait_until(poll, until=bool)``: poll until it is so; what was seen then.

    No answer is "not yet".
    """

    def wait(
        poll: Callable[[], object],
        *,
        within_s: float = WITHIN_S,
        until: Callable[[object], bool] = bool,
        every_s: float = POLL_INTERVAL_S,
    ) -> object:
        def answer() -> object:
            try:
                return poll()
            except NO_ANSWER as error:
                return error

        deadline = time.monotonic() + within_s
        while isinstance(seen := answer(), NO_ANSWER) or not until(seen):
            if time.monotonic() > deadline:
                pytest.fail(f"not so within {within_s} s; last seen: {seen!r}")
            time.sleep(every_s)
        return seen

    return wait
