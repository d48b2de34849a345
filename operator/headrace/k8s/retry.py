"""Requests that are made again while the API server does not answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.errors import Retriable

_AGAIN_S = 0.5

T = TypeVar("T")


async def retried(ask: Callable[[], Awaitable[T]], within_s: float) -> T:
    """What ``ask`` comes to, asked again until then: what it asks for may be done twice.

    Raises its ``Retriable`` after ``within_s``, and whatever else it raises.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            return await ask()
        except Retriable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_AGAIN_S)
