"""A checkpoint task: writes where its groups would go on, on the target."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.api import (
    ConditionStatus,
    Reason,
)
from headrace.connect.checkpoint_log import CheckpointLog
from headrace.connect.checkpoint_positions import GroupPartition, copied_to
from headrace.connect.group_applier import GroupApplier, Wanted
from headrace.connect.ownership import OwnershipLost
from headrace.connect.synced_offset_log import SyncedOffsetLog
from headrace.connect.threaded_unit import ThreadedUnit
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Committed
from headrace.replication import (
    Applied,
    Checkpoint,
    Precision,
    StoredCheckpoint,
    Translated,
    next_checkpoint,
)

_COVERED_WITHIN_S = 15.0
"""So long an offset waits to be translated exactly: of a partition that is copied, a source task
writes an offset sync every ten seconds."""
_POLL_S = 1.0
_AGAIN_S = 10.0
_UNKNOWN = "Unknown"


class CheckpointTask(ThreadedUnit):
    """Every ``checkpoints.intervalSeconds`` it reads what its groups have committed; it writes the
    checkpoints as soon as the offsets can be translated exactly, else a little later.

    A missing right is reported, and stops nothing but the checkpoints.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._syncs = SyncedOffsetLog(self.context)
        self._checkpoints = CheckpointLog(self.context)
        self._groups: tuple[str, ...] = ()
        self._next_read_s = self._wait_until_s = 0.0
        self._waiting: dict[GroupPartition, Committed] = {}
        """What is committed and has no checkpoint yet."""
        self._refused: Retriable | None = None
        """Why the offsets of some groups could not be read last."""
        self._applier = GroupApplier(self.context.target)
        self._not_set: Retriable | None = None
        """Why some groups of the target could not be set last."""
        self._precision: dict[GroupPartition, str] = {}
        """How each was translated last."""

    def restore(self) -> None:
        """Nothing to restore: the logs are read when they are needed."""

    def run_once(self) -> float:
        """Read what is committed if that is due, and write checkpoints."""
        self.problem = self._refused or self._not_set
        try:
            wait_s = self._advance()
        except OwnershipLost:
            raise
        except HeadraceError as error:
            self.problem = error if isinstance(error, Retriable) else Retriable(str(error))
            return _AGAIN_S if isinstance(error, Fatal) else _POLL_S
        self._report()
        return wait_s

    def close(self) -> None:
        """Free the clients."""
        self._syncs.close()
        self._checkpoints.close()

    def _advance(self) -> float:
        now_s, interval_s = self.clock.monotonic(), self.context.spec.checkpoints.interval_seconds
        groups = self.ownership.task.spec.groups
        if groups != self._groups or now_s >= self._next_read_s:
            self._checkpoints.prepare()
            self._read(groups)
            self._groups, self._next_read_s = groups, now_s + interval_s
            self._wait_until_s = now_s + min(_COVERED_WITHIN_S, interval_s / 2)
        if self._waiting:
            self._write(last=self.clock.monotonic() >= self._wait_until_s)
        rest_s = max(0.0, self._next_read_s - self.clock.monotonic())
        return min(_POLL_S, rest_s / 2) if self._waiting else rest_s

    def _read(self, groups: Iterable[str]) -> None:
        committed, refused = self.context.source.committed(groups)
        self._waiting = {
            GroupPartition(group, at): one
            for group, offsets in committed.items()
            for at, one in offsets.items()
            if self.context.topics.matches(at.topic)
        }
        kept = self._precision.keys() & self._waiting.keys()
        self._precision = {position: self._precision[position] for position in kept}
        self._applier.keep(kept)
        self._refused = _problem(refused.values())
        self.problem = self._refused or self._not_set

    def _write(self, *, last: bool) -> None:
        """Write the checkpoints of what is waiting and translated; ``last``: of the others, too,
        as well as they are known."""
        self._syncs.read()
        copied = copied_to(self.context, {position.at for position in self._waiting})
        translated = {
            position: self._syncs.offsets.translate(position.at, one.offset, copied[position.at])
            for position, one in self._waiting.items()
        }
        done = {
            position: found
            for position, found in translated.items()
            if last or (found is not None and found.precision is Precision.EXACT)
        }
        self._put({at: self._wanted(at, found) for at, found in done.items() if found is not None})
        for position, found in done.items():
            self._precision[position] = _UNKNOWN if found is None else found.precision
            del self._waiting[position]

    def _wanted(self, position: GroupPartition, found: Translated) -> Wanted:
        group, at = position
        topic, committed = self.context.policy.target_topic(at.topic), self._waiting[position]
        checkpoint = Checkpoint(
            group, topic, at.partition, committed.offset, found.offset, committed.metadata
        )
        before = self._checkpoints.before(checkpoint.key())
        known = before.checkpoint if before else None
        return Wanted(next_checkpoint(checkpoint, found.precision, known), before)

    def _put(self, wanted: Mapping[GroupPartition, Wanted]) -> None:
        """Write the checkpoints, and set the target's groups if they are to be set."""
        if self.context.spec.checkpoints.apply_to_groups:
            self._applier.apply(wanted, self._checkpoints.write)
            self._not_set = _problem(self._applier.refused)
        else:
            self._checkpoints.write([StoredCheckpoint(one.checkpoint) for one in wanted.values()])
            self._applier.keep(())
            self._not_set = None
        self.problem = self._refused or self._not_set

    def _report(self) -> None:
        counts = Counter(self._precision.values())
        words = {
            Precision.EXACT: "exact",
            Precision.AHEAD: "at the end of the copy, as they are not copied yet",
            Precision.CONSERVATIVE: "earlier than they could be, as not every pair of offsets is "
            "known",
            _UNKNOWN: "without a checkpoint, as no offset sync is as old",
        }
        parts = [f"{counts[one]} {text}" for one, text in words.items() if counts[one]]
        listed = ", ".join(parts) or "none yet"
        message = f"offsets of {len(self._groups)} groups: {listed}{self._set_on_target()}"
        self.report_ready(ConditionStatus.TRUE, Reason.RUNNING, message)

    def _set_on_target(self) -> str:
        counts = Counter(self._applier.found.values())
        words = {
            Applied.SET: "set",
            Applied.ACTIVE: "not, as the group has members there",
            Applied.FOREIGN: "not, as consumers there have committed",
            Applied.LATER: "not, as the group is behind them already",
            Applied.REFUSED: "not, as the target refuses it",
        }
        parts = [f"{counts[one]} {text}" for one, text in words.items() if counts[one]]
        return f"; in groups of the target: {', '.join(parts)}" if parts else ""


def _problem(errors: Iterable[HeadraceError]) -> Retriable | None:
    why = "; ".join(map(str, errors))
    return Retriable(why[:4096]) if why else None
