"""Asks the API server again while it does not answer: whoever breaks things must not give up."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.errors import Retriable

WITHIN_S = 60.0
_AGAIN_S = 0.5

T = TypeVar("T")


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """What ``ask`` comes to, asked anew until then; it may be done twice.

    Raises ``Retriable`` when there was no answer in ``WITHIN_S``, and what else ``ask`` raises.
    """
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return await ask()
        except Retriable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_AGAIN_S)
