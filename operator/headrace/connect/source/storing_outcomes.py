"""Whether the target stores the progress of a task: counted, and since when it does not."""

from headrace.api import Condition
from headrace.connect.runtime.figures import CommitCounts
from headrace.connect.runtime.observations import not_stored
from headrace.movers import ANSWER_S
from headrace.timing import Clock


class StoringOutcomes:
    """Outcomes of storing progress, one write at a time."""

    def __init__(self, clock: Clock, target: str) -> None:
        self._clock, self._target = clock, target
        self.commits = CommitCounts()
        self._unstored_since: tuple[float, float] | None = None
        """When the oldest progress was sent that is not stored: monotonic and Unix seconds."""

    def sent(self) -> None:
        """Progress was sent."""
        if self._unstored_since is None:
            self._unstored_since = self._clock.monotonic(), self._clock.time()

    def succeeded(self) -> None:
        """Record that the target has stored what was sent."""
        self.forget()
        self.commits.succeed(self._clock.time())

    def forget(self) -> None:
        """Whatever was sent, it is known by now what is stored."""
        self._unstored_since = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """``ProgressNotStored``, when that was so for longer than an election takes."""
        since = self._unstored_since
        if since is None or self._clock.monotonic() - since[0] <= ANSWER_S:
            return ()
        return (not_stored(self._target, since[1]),)
