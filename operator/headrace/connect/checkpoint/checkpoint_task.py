"""A checkpoint task: writes where its groups would go on, on the target."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.api import (
    ConditionStatus,
    Reason,
)
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.runtime.ownership import OwnershipLost
from headrace.connect.runtime.threaded_unit import ThreadedUnit
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.replication import Applied, Precision

_COVERED_WITHIN_S = 15.0
"""So long an offset waits to be translated exactly: of a partition that is copied, a source task
writes an offset sync every ten seconds."""
_POLL_S = 1.0
_AGAIN_S = 10.0


class CheckpointTask(ThreadedUnit):
    """Every ``checkpoints.intervalSeconds`` it reads what its groups have committed; it writes the
    checkpoints as soon as the offsets can be translated exactly, else a little later.

    A missing right is reported, and stops nothing but the checkpoints.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._checkpoints = GroupCheckpoints(self.context)
        self._groups: tuple[str, ...] = ()
        self._next_read_s = self._wait_until_s = 0.0

    def restore(self) -> None:
        """Nothing to restore: the logs are read when they are needed."""

    def run_once(self) -> float:
        """Read what is committed if that is due, and write checkpoints."""
        try:
            wait_s = self._advance()
        except OwnershipLost:
            raise
        except HeadraceError as error:
            self.problem = error if isinstance(error, Retriable) else Retriable(str(error))
            return _AGAIN_S if isinstance(error, Fatal) else _POLL_S
        self.problem = self._checkpoints.problem
        self._report()
        return wait_s

    @property
    def groups(self) -> Mapping[str, int]:
        """See ``GroupCheckpoints.unread``; any thread may ask."""
        return self._checkpoints.unread

    @property
    def translations(self) -> Mapping[str, int]:
        """See ``GroupCheckpoints.translations``; any thread may ask."""
        return self._checkpoints.translations

    def close(self) -> None:
        """Free the clients."""
        self._checkpoints.close()

    def _advance(self) -> float:
        now_s, interval_s = self.clock.monotonic(), self.context.spec.checkpoints.interval_seconds
        groups = self.ownership.task.spec.groups
        if groups != self._groups or now_s >= self._next_read_s:
            self._checkpoints.read(groups)
            self._groups, self._next_read_s = groups, now_s + interval_s
            self._wait_until_s = now_s + min(_COVERED_WITHIN_S, interval_s / 2)
        if self._checkpoints.waiting:
            self._checkpoints.write(
                last=self.clock.monotonic() >= self._wait_until_s,
                apply=self.context.spec.checkpoints.apply_to_groups,
            )
        rest_s = max(0.0, self._next_read_s - self.clock.monotonic())
        return min(_POLL_S, rest_s / 2) if self._checkpoints.waiting else rest_s

    def _report(self) -> None:
        counts = Counter(self._checkpoints.precision.values())
        words: dict[Precision | None, str] = {
            Precision.EXACT: "exact",
            Precision.AHEAD: "at the end of the copy, as they are not copied yet",
            Precision.CONSERVATIVE: "earlier than they could be, as not every pair of offsets is "
            "known",
            None: "without a checkpoint, as no offset sync is as old",
        }
        parts = [f"{counts[one]} {text}" for one, text in words.items() if counts[one]]
        listed = ", ".join(parts) or "none yet"
        message = f"offsets of {len(self._groups)} groups: {listed}{self._set_on_target()}"
        self.report_ready(ConditionStatus.TRUE, Reason.RUNNING, message)

    def _set_on_target(self) -> str:
        counts = Counter(self._checkpoints.applier.found.values())
        words = {
            Applied.SET: "set",
            Applied.ACTIVE: "not, as the group has members there",
            Applied.FOREIGN: "not, as consumers there have committed",
            Applied.LATER: "not, as the group is behind them already",
            Applied.REFUSED: "not, as the target refuses it",
        }
        parts = [f"{counts[one]} {text}" for one, text in words.items() if counts[one]]
        return f"; in groups of the target: {', '.join(parts)}" if parts else ""
