"""Pipeline of a lane with preserved offsets: it plans data that it reads, and writes the plan."""

from collections.abc import Callable, Iterable, Iterator, Set

from headrace.api import TopicPartition
from headrace.api.offsets import GapPolicy
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire import Reply, start
from headrace.movers.batch.comparison import BatchComparison
from headrace.movers.batch.gate import Judged, Passage, Why
from headrace.movers.batch.joining import Run
from headrace.movers.batch.memory import HeldResponse
from headrace.movers.batch.one_at_a_time import OneAtATime
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.batch.partition_data import Found
from headrace.movers.batch.pipeline import Pipeline
from headrace.movers.batch.span import Span
from headrace.movers.batch.topic_changes import TopicChanges
from headrace.movers.batch.window import BatchWindow
from headrace.movers.preserved.filler import BATCH_RECORDS
from headrace.movers.preserved.openings import Opening
from headrace.movers.preserved.owner import TaskProducers
from headrace.movers.preserved.plan import Append, Operation, planned
from headrace.movers.preserved.writer import Writer
from headrace.movers.preserved.wrong_offset import REBUILD, WrongOffset

_MOST_WAITING = 64
"""Operations of a partition that wait for a hole before them: then no more is read."""
_MARKERS = 1_000
"""Number of offsets of a longer gap that are filled at a time, in some seconds, or a batch of
fillers. They count then, and the rest may be left to another owner.
"""


class PreservedPipeline(Pipeline):
    """Pipeline of a lane whose partitions have been taken over by one owner."""

    _copies_spans = False
    _writer: Writer | None = None
    _owner: TaskProducers | None = None

    async def begin(self) -> None:
        """Do nothing: the producer ids arrive with the partitions."""

    @property
    def _sending(self) -> Writer | None:
        return self._writer

    def write_from(self, at: TopicPartition, opening: Opening) -> None:
        """Open a partition of the target before it is read."""
        if self._writer is None or self._owner is not opening.owner:
            if self._writer is not None:
                self._writer.close()
            self._owner = opening.owner
            self._writer = Writer(
                self._outlet.leaders,
                opening.owner,
                self._written,
                self._failed,
                first=self._check_first,
                waiting=self._say_target,
                with_records=self._resources.holes is GapPolicy.ABORTED_FILLERS,
            )
        self._writer.begin(at, opening.end, opening.closer)
        self.reader.wake()

    def forget(self, at: TopicPartition) -> None:
        """Stop writing a partition of the target."""
        if self._writer is not None:
            self._writer.forget(at)

    def leave(self, at: TopicPartition) -> None:
        """Leave a partition of the source: drop waiting data, and complete data in flight."""
        with self._state.lock:
            window = self._state.windows.get(at)
            if window is None or self._writer is None:
                return
            dropped = self._writer.leave(window.target)
            sizes = [one.outgoing.payload_bytes for one in dropped if isinstance(one, Append)]
            window.unsent(len(dropped), sum(sizes))
            self.reader.rewind(at, window.position)

    def readable(self, ats: Iterable[TopicPartition]) -> Set[TopicPartition]:
        windows = self._state.windows
        return {
            at
            for at in super().readable(ats)
            if (window := windows.get(at)) is not None
            and self._waits(window.target) < _MOST_WAITING
        }

    def _waits(self, at: TopicPartition) -> int:
        return 0 if self._writer is None else self._writer.waits(at)

    def _pass(
        self,
        window: BatchWindow,
        found: Iterable[Found],
        held: HeldResponse,
        suspects: OneAtATime | None,
        changes: TopicChanges,
        *,
        singly: bool,
    ) -> None:
        operations = planned(
            self._counted(found),
            start=window.position,
            release=held.release,
            copies=self._resources.holes is GapPolicy.COPIES,
        )
        for operation in operations:
            if isinstance(operation, Append) and not operation.rebuilt:
                held.use()
            self._write(window, operation)
            if window.at in self._state.problems:
                return

    def _write(self, window: BatchWindow, operation: Operation) -> None:
        state = self._state
        if not window.in_flight:
            state.waiting_since_s[window.at] = self._loop.now_s()
        if isinstance(operation, Append):
            window.sent(operation.outgoing)
            state.handed += operation.outgoing.records
        else:
            filled = self._resources.holes is GapPolicy.ABORTED_FILLERS
            for piece in operation.pieces(BATCH_RECORDS if filled else _MARKERS):
                window.skipping(piece.next)
                self._give(window, piece)
            return
        self._give(window, operation)

    def _give(self, window: BatchWindow, operation: Operation) -> None:
        assert self._writer is not None
        self._writer.write(window.target, operation)

    def _counted(self, found: Iterable[Found]) -> Iterator[Judged | Run]:
        copied = self._state.copied
        for one in found:
            assert not isinstance(one, Span), "batches are planned one by one"
            if isinstance(one, Run):
                copied.rebuild(one.batches, one.size, Why.SMALL)
            elif one.passage is Passage.COPY:
                copied.batches_copied += 1
                copied.bytes_copied += len(one.batch.data)
            elif one.passage is Passage.REBUILD and one.why is not None:
                copied.rebuild(1, len(one.batch.data), one.why)
            yield one

    # Reports of the writer.

    def _written(self, at: TopicPartition, next_offset: int, outgoing: Outgoing | None) -> None:
        if outgoing is not None:
            self._delivered(at, outgoing, next_offset - outgoing.records)
            return
        state = self._state
        with state.lock:
            if (window := state.by_target.get(at)) is None:
                return
            state.copied.filled += window.skipped(next_offset)
            self._epochs.delivered()
            if window.in_flight:
                state.waiting_since_s[window.at] = self._loop.now_s()
            else:
                state.waiting_since_s.pop(window.at, None)
        self.reader.wake()

    def _check_first(
        self, at: TopicPartition, outgoing: Outgoing, done: Callable[[HeadraceError | None], None]
    ) -> None:
        offset = outgoing.first_offset

        def found(reply: Reply[tuple[BatchComparison, str]]) -> None:
            verdict, why = reply.result()
            name = self._target.name
            if verdict is BatchComparison.SAME:
                done(None)
            elif verdict is BatchComparison.NOT_READ:
                done(
                    Retriable(f"could not read {at} on {name} back from offset {offset} on: {why}")
                )
            else:
                done(
                    WrongOffset(
                        at,
                        offset,
                        f"{at} on {name} does not hold from offset {offset} on what the source "
                        f"holds there: {why}; an earlier owner wrote what the source held before "
                        f"it was compacted, or another client writes there; {REBUILD}",
                    )
                )

        start(self._verifier.verdict(at, offset, outgoing.batch)).then(found)
