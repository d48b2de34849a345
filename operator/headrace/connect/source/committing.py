"""Storing of a source task's progress, which precedes the release of partitions and its end."""

from headrace.api import TaskPhase, partitions_text
from headrace.connect.source.copying import Copying
from headrace.connect.source.task_context import TaskContext
from headrace.errors import Retriable


class Committing:
    """No call waits for the target: the next one takes its answer. One thread calls it."""

    def __init__(self, task: TaskContext, copying: Copying) -> None:
        self._copying, self._life, self._log = copying, task.life, task.log
        self._progress, self._contested, self._syncing = task.progress, task.contested, task.syncing

    def commit(self, *, at_once: bool = False) -> bool:
        """Store what is acknowledged; return whether there was anything to store.

        With ``at_once``, also commit a transaction that is not due.
        """
        if self._copying.lane is None:
            return False
        self._progress.check_owner(self._copying.owned)
        if not self._stored() or (lane := self._copying.lane) is None:
            return False
        try:
            return self._progress.commit(lane, self._contested.to_refresh(), at_once=at_once)
        except Retriable as error:
            if lane.transactions is None:
                raise
            self._copying.retry_all(error)
            return False

    def _stored(self) -> bool:
        """Whether the target has what was stored last; a refusal makes the task store it again."""
        try:
            late = self._progress.late
            stored = self._progress.stored()
            if late and stored:
                self._life.recovered()
            elif late:
                self._life.retrying(Retriable(late))
            return stored
        except Retriable as error:
            self._copying.retry_all(error)
            return False

    def close_leaving(self) -> bool:
        """Close leaving partitions once their progress is stored; return whether it did."""
        if (lane := self._copying.lane) is None:
            return False
        kept = self._copying.kept
        lane.keep(kept)
        if not (leaving := lane.partitions - kept):
            return False
        lane.leave(leaving)
        state = lane.state()
        if any(state[at].in_flight for at in leaving):
            if lane.transactions is not None:
                self.commit(at_once=True)
            return False
        if leaving & self._progress.unstored(lane).keys():
            self.commit(at_once=True)
            return False
        if not self._stored():
            return False
        self._syncing.take(lane, final=True)
        lane.forget(leaving)
        self._progress.forget(leaving)
        return True

    def finish(self, *, late: bool) -> bool:
        """Store everything before the release; return whether the release may proceed.

        That is the case if everything is stored, or if storing is given up because it is ``late``.
        """
        settled = self._settled(late=late)
        if not settled and not late:
            return False
        held = set(self._progress.settled)
        if (lane := self._copying.lane) is not None:
            self._syncing.take(lane, final=True)
            held |= lane.partitions
        if held and not settled and not (lane and lane.transactions):
            self._log.warning(
                "released before its progress was stored: records may come twice",
                partitions=partitions_text(held),
            )
        return True

    def _settled(self, *, late: bool) -> bool:
        """Return whether nothing is in flight or unstored.

        With ``late``, do not wait for records that the target does not acknowledge.
        """
        copying, preparing = self._copying, self._copying.preparing
        if preparing.running:
            return False
        suspended = self._life.phase is TaskPhase.SUSPENDED
        if suspended and not preparing.settled_is_stored(copying.owned):
            return False
        if (lane := copying.lane) is None or self._life.phase is TaskPhase.FAILED:
            return True
        lane.poll()
        if lane.in_flight and not late and lane.transactions is None:
            return False
        sent = self.commit(at_once=True)
        return not sent and self._stored() and not lane.in_flight
