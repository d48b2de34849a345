"""Retries of requests that brokers did not answer in time."""

import time
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import Retriable

T = TypeVar("T")

RETRIED_S = 60.0
"""Time in which a request is repeated, in seconds. It covers the election of new leaders (10 s) and
a broker that starts on a busy machine.
"""
_PAUSE_S = 1.0


def patiently(ask: Callable[[], T]) -> T:
    """Return what ``ask`` returns, and repeat it for ``RETRIED_S`` while brokers do not respond.

    The last attempt may begin at the end of that time. If it fails, its ``Retriable`` is raised.
    """
    deadline_s = time.monotonic() + RETRIED_S
    while True:
        try:
            return ask()
        except Retriable:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_PAUSE_S)
