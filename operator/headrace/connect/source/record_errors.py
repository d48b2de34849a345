"""Treatment of records that the target rejects permanently: ``spec.onRecordError``."""

from collections.abc import Iterable

from structlog.typing import FilteringBoundLogger

from headrace.api import RecordErrorAction, TopicPartition
from headrace.assign import TaskId
from headrace.connect.runtime.context import FlowContext
from headrace.connect.source.source_status import SourceStatus
from headrace.connect.source.task_progress import TaskProgress
from headrace.connect.takeover.starts import Start
from headrace.datapath import CopyFrom, Lane, Problem, RecordRefused, SourceRecord, context_headers
from headrace.errors import Fatal, HeadraceError, Retriable


class RecordErrors:
    """Rejected records of one source task.

    The records of a rejected batch are copied again one at a time. The policy decides about a
    record that is rejected alone, which is then stored as done. ``keep`` and ``answer`` run in the
    background while the task has no lane. The other methods run in its loop.
    """

    def __init__(
        self, context: FlowContext, task: TaskId, reported: SourceStatus, log: FilteringBoundLogger
    ) -> None:
        self._context, self._reported, self._log = context, reported, log
        self._task = task
        self._refused: dict[TopicPartition, RecordRefused] = {}
        """Rejected records of the lane that was closed last."""
        self._suspects: dict[TopicPartition, range] = {}
        self._not_answered: dict[TopicPartition, HeadraceError] = {}

    def others(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return the problems that are not rejected records.

        ``answer`` handles rejected records after the lane is settled.
        """
        return [problem for problem in problems if not isinstance(problem.error, RecordRefused)]

    def copy_from(self, at: TopicPartition, start: Start) -> CopyFrom:
        """Return where to copy a partition from, with the records to send one at a time."""
        suspects = self._suspects.get(at, range(0))
        return CopyFrom(
            start.source_offset, start.leader_epoch, start.target_offset, suspects, start.writer
        )

    def keep(self, lane: Lane) -> None:
        """Keep the rejected records of a settled lane."""
        self._refused = {
            at: error for at, error in lane.problems() if isinstance(error, RecordRefused)
        }

    def answer(self, progress: TaskProgress) -> None:
        """Skip records that were rejected alone, or write them to the dead-letter topic.

        Afterwards store that these records are done. If the dead-letter topic rejects a record, the
        record's partition stops.
        """
        refused, self._refused = self._refused, {}
        for at, error in sorted(refused.items()):
            record = error.record
            if self._context.spec.on_record_error.action is RecordErrorAction.FAIL:
                self._not_answered[at] = error
                continue
            if record is None or progress.settled[at].source_offset != record.offset:
                self._suspects[at] = error.offsets
                continue
            try:
                self._leave_out(progress, error, record)
            except (Retriable, Fatal) as why:
                self._not_answered[at] = why

    def take_not_answered(self) -> dict[TopicPartition, HeadraceError]:
        """Return and forget the errors of partitions that must stop at a rejected record."""
        taken, self._not_answered = self._not_answered, {}
        return taken

    def _leave_out(
        self, progress: TaskProgress, error: RecordRefused, record: SourceRecord
    ) -> None:
        topic = self._context.spec.on_record_error.dead_letter_topic
        if topic is not None:
            self._write_dead_letter(topic, error, record)
        progress.leave_out(error.at, record.offset, is_skipped=topic is None)
        # The record is counted now, because it may be handled again if storing fails.
        self._reported.left_out(error, topic)
        self._log.warning(
            "record refused: skipped" if topic is None else "record refused: dead-lettered",
            partition=str(error.at),
            offset=record.offset,
            why=str(error),
        )

    def _write_dead_letter(self, topic: str, error: RecordRefused, record: SourceRecord) -> None:
        of = f"{error.at} offset {record.offset} of {self._context.source.name}"
        headers = context_headers(self._task, error)
        try:
            self._context.dead_letters.write(topic, record, headers, of)
        except Fatal as why:
            raise Fatal(
                f"{why}; the record was refused before: {error}. Correct either topic, or leave "
                "the record out with spec.onRecordError.action: Skip; then restart the task"
            ) from why
