"""The end of a source task: a pool frees its clients and releases its unit."""

from concurrent.futures import Executor, Future

from structlog.typing import FilteringBoundLogger

from headrace.connect.runtime.lifecycle import release
from headrace.connect.runtime.ownership import Ownership
from headrace.movers import Lane
from headrace.timing import Clock

DRAIN_TIMEOUT_S = 2.5
"""With storing and release it fits into the 5 s that a graceful stop may take."""
_SETTLING_TIMEOUT_S = DRAIN_TIMEOUT_S + 1.5
"""A lane that is being settled is closed by then."""


class Releasing:
    """One thread calls it."""

    def __init__(
        self, ownership: Ownership, pool: Executor, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._ownership, self._pool, self._clock, self._log = ownership, pool, clock, log
        self._drain_until = 0.0
        self._release: Future[None] | None = None

    def suspend(self) -> None:
        """From now on the task has so long for what is in flight."""
        self._drain_until = self._clock.monotonic() + DRAIN_TIMEOUT_S

    @property
    def late(self) -> bool:
        """Whether that time is over."""
        return self._clock.monotonic() > self._drain_until

    @property
    def begun(self) -> bool:
        """Whether the unit is being released: the task cannot come back."""
        return self._release is not None

    def release(self, lane: Lane | None, settling: Lane | None) -> bool:
        """Close the lane's clients, then release the unit; return whether both are done.

        Call it again until they are. The loop must not use the lane afterwards. ``settling`` is a
        lane that another thread is about to close. Until then its client may send records again
        that the target did not acknowledge, after the records of the next owner.
        """
        if self._release is None:
            if lane is not None and lane.in_flight and lane.transactions is None:
                self._log.warning(
                    "released without an answer of the target: these records may come twice",
                    records=lane.in_flight,
                )
            self._release = self._pool.submit(self._free_and_release, lane, settling)
        return self._release.done()

    def free(self, lane: Lane) -> None:
        """Free a lane's clients only."""
        self._pool.submit(lane.close)

    def _free_and_release(self, lane: Lane | None, settling: Lane | None) -> None:
        if lane is not None:
            lane.close()
        if settling is not None and not settling.closed.wait(_SETTLING_TIMEOUT_S):
            self._log.warning("released while a lane is not closed: records may come twice")
        release(self._ownership, self._log)
