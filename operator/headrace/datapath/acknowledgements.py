"""Acknowledgements of records that were sent to the target."""

import threading
from collections.abc import Callable

from headrace.errors import HeadraceError, Retriable
from headrace.kafka import KafkaError, translate
from headrace.timing import Clock

ANSWER_S = 10.0
"""Time in seconds after which a missing acknowledgement is reported as late."""


class Storing:
    """Acknowledgement of records that were sent to the target."""

    def __init__(
        self,
        poll: Callable[[float], object],
        clock: Clock,
        tried: str,
        records: int,
        timeout_s: float,
    ) -> None:
        """Create the object.

        Args:
            poll: Waits up to the given time in seconds for delivery reports of the producer.
            clock: Clock of the timeout.
            tried: Description of the operation, for messages.
            records: Number of records.
            timeout_s: Time for all acknowledgements.
        """
        self._poll, self._clock = poll, clock
        self._tried = tried
        self._timeout_s = timeout_s
        self._began_s = clock.monotonic()
        self._error: KafkaError | None = None
        self._failure: HeadraceError | None = None
        self._outstanding = records
        # The producer is shared: a unit's thread may receive the reports of another unit's records.
        self._counting = threading.Lock()

    def delivered(self, error: KafkaError | None, _: object) -> None:
        """Count a delivery report of the producer."""
        with self._counting:
            self._error = self._error or error
            self._outstanding -= 1

    def ended(self, error: HeadraceError | None) -> None:
        """Set the outcome of all records at once, for example of a transaction."""
        with self._counting:
            self._failure, self._outstanding = error, 0

    @property
    def answered(self) -> bool:
        """Whether all records are acknowledged or rejected."""
        self._poll(0)
        return self._outstanding == 0

    def done(self) -> bool:
        """Return whether all records are acknowledged.

        Raises:
            Retriable: An acknowledgement did not arrive in time.
            HeadraceError: A record was rejected.
        """
        self._poll(0)
        if self._error is not None:
            raise translate(self._error, self._tried)
        if self._failure is not None:
            raise self._failure
        if self.unanswered_for(self._timeout_s):
            raise Retriable(f"could not {self._tried}: no answer within {self._timeout_s:.0f} s")
        return self._outstanding == 0

    @property
    def late(self) -> str:
        """Message about a late acknowledgement; empty if none is late."""
        late = self.unanswered_for(ANSWER_S)
        return f"waiting to {self._tried}: no answer within {ANSWER_S:.0f} s" if late else ""

    def unanswered_for(self, seconds: float) -> bool:
        """Return whether records have been unacknowledged for longer than ``seconds``."""
        return self._outstanding > 0 and self._clock.monotonic() - self._began_s > seconds

    def wait(self) -> None:
        """Wait until all records are acknowledged. Raise the errors of ``done``."""
        while not self.done():
            self._poll(0.05)
