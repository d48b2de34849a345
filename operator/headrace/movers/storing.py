"""Progress on its way to the target, until it is acknowledged."""

import threading
from collections.abc import Callable

from headrace.errors import HeadraceError, Retriable
from headrace.kafka import KafkaError, Message, translate
from headrace.timing import Clock

ANSWER_S = 10.0
"""Time after which a response is late and is reported."""


class Storing:
    """Progress on its way to the target."""

    def __init__(
        self,
        poll: Callable[[float], None],
        clock: Clock,
        tried: str,
        records: int,
        timeout_s: float,
    ) -> None:
        """Create the object.

        Args:
            poll: Function that receives the producer's reports, and waits for them for the given
                seconds.
            clock: Clock of the time-out.
            tried: What is stored, for messages.
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

    def delivered(self, error: KafkaError | None, _: Message) -> None:
        """Count the producer's delivery report."""
        with self._counting:
            self._error = self._error or error
            self._outstanding -= 1

    def ended(self, error: HeadraceError | None) -> None:
        """Set the outcome of all records at once, for example of a transaction."""
        with self._counting:
            self._failure, self._outstanding = error, 0

    @property
    def answered(self) -> bool:
        """Whether all of it is acknowledged or refused, by now."""
        self._poll(0)
        return self._outstanding == 0

    def done(self) -> bool:
        """Return whether all records are acknowledged.

        Raise the error that rejected some of them, or ``Retriable`` without a response in time.
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
        """A sentence when an answer is late."""
        late = self.unanswered_for(ANSWER_S)
        return f"waiting to {self._tried}: no answer within {ANSWER_S:.0f} s" if late else ""

    def unanswered_for(self, seconds: float) -> bool:
        """Whether that is so, by the reports that have been received."""
        return self._outstanding > 0 and self._clock.monotonic() - self._began_s > seconds

    def wait(self) -> None:
        """Until ``done``."""
        while not self.done():
            self._poll(0.05)
