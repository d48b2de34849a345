"""The two clocks of the jobs, both in ms since 1970."""

import time

_BEGAN_NS = time.time_ns() - time.monotonic_ns()


def now_ms() -> int:
    """As this machine believes: what is compared with other machines, and written down."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Of this process, and never set: nobody else's time is compared with it."""
    return (_BEGAN_NS + time.monotonic_ns()) // 1_000_000
