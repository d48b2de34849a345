"""Checkpoint connector and checkpoint tasks."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.api import (
    ConditionStatus,
    Reason,
    TaskType,
)
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.groups import OtherGroups, listed, other_groups
from headrace.connect.runtime.herder import EpochAltered, TaskConflict
from headrace.connect.runtime.ownership import OwnershipLost
from headrace.connect.runtime.threaded_unit import ThreadedUnit, succeeds
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.replication import Applied, Precision, split_groups

_OTHERS_EVERY_S = 600.0
"""Interval in seconds at which share groups and Streams groups are listed, which opens a connection
to each broker. With ``applyToGroups``, ``checkpoints.intervalSeconds`` is used instead, so that new
share groups are followed."""


class CheckpointConnector(ThreadedUnit):
    """Connector that finds groups with committed offsets of topics that the flow replicates.

    It runs every ``discovery.groupsSeconds``. A flow without such a group has no checkpoint task.
    """

    _followed: frozenset[str] = frozenset()
    _others = OtherGroups()
    _share: frozenset[str] = frozenset()
    """Share groups that are followed."""
    _others_found_s = -_OTHERS_EVERY_S

    def restore(self) -> None:
        """Do nothing: the connector has no state to restore."""

    def has_remedy(self, error: HeadraceError) -> Callable[[], bool] | None:
        """After ``EpochAltered``, return a function that publishes again. Otherwise return None."""
        return partial(succeeds, self._publish) if isinstance(error, EpochAltered) else None

    def run_once(self) -> float:
        """Find groups, and publish the tasks."""
        spec = self.context.spec
        refused: Mapping[str, HeadraceError] = {}
        self.problem = None
        if not spec.checkpoints.enabled:
            self._followed = self._share = frozenset()
        else:
            try:
                refused = self._discover()
                self._find_others()
                refused = {**refused, **self._others.unread}
            except Fatal as error:  # a missing permission: known groups are still followed
                self.problem = Retriable(str(error))
        if refused:
            first, *more = (str(error) for error in refused.values())
            others = f" (and {len(more)} more groups)" if more else ""
            self.problem = Retriable(f"{first}{others}")
        self._publish()
        self._report()
        return float(spec.discovery.groups_seconds)

    def _discover(self) -> Mapping[str, HeadraceError]:
        """Find the groups to follow, and return an error for each group that cannot be read.

        The offsets of a group that is already followed are not requested again.
        """
        source = self.context.source
        there = {group for group in source.groups() if self.context.groups.matches(group)}
        committed, refused = source.committed(there - self._followed)
        found = {
            group
            for group, offsets in committed.items()
            if any(self.context.topics.matches(at.topic) for at in offsets)
        }
        if new := found - self._followed:
            self.log.info("groups found", groups=len(new), first=min(new))
        self._followed = frozenset(self._followed & there | found)
        return refused

    def _find_others(self) -> None:
        now_s, checkpoints = self.clock.monotonic(), self.context.spec.checkpoints
        if not checkpoints.apply_to_groups:
            self._share = frozenset()
        every_s = checkpoints.interval_seconds if checkpoints.apply_to_groups else _OTHERS_EVERY_S
        if now_s - self._others_found_s < every_s:
            return
        self._others_found_s = now_s
        try:
            self._others = other_groups(self.context)
            unread = self._share & self._others.unread.keys()
            self._share = frozenset(self._others.starts.keys() | unread)
        except HeadraceError as error:  # consumer groups are followed nevertheless
            self.log.warning("share and Streams groups not listed", why=str(error))

    def _publish(self) -> None:
        task, kind = self.ownership.task, TaskType.CHECKPOINT_TASK
        before = {one.spec.index: one.spec.groups for one in self.herder.list_tasks(task, kind)}
        split = split_groups(self._followed | self._share, before, self.context.spec.tasks.max)
        try:
            self.herder.put_tasks(task, kind, split, {})
        except TaskConflict as error:
            raise OwnershipLost(str(error)) from error

    def _report(self) -> None:
        spec, source = self.context.spec, self.context.spec.source.alias
        if not spec.checkpoints.enabled:
            message = "spec.checkpoints.enabled is false: no checkpoints are written"
        elif self._followed or self._share:
            share = f" and {len(self._share)} share groups" if self._share else ""
            message = f"follows {len(self._followed)} consumer groups{share} of {source}"
        else:
            message = (
                f"no consumer group of {source} that matches spec.groups has committed offsets of "
                "the flow's topics; only groups that the user may describe are seen"
            )
        if self._others.untranslated and spec.checkpoints.enabled:
            message += f"; their offsets are not translated: {listed(self._others.untranslated)}"
        self.report_ready(ConditionStatus.TRUE, Reason.RUNNING, message)


_COVERED_TIMEOUT_S = 15.0
"""Maximum time in seconds that an offset waits for an exact translation. A source task writes an
offset sync every ten seconds for a partition that is copied."""
_POLL_S = 1.0
_RETRY_INTERVAL_S = 10.0


class CheckpointTask(ThreadedUnit):
    """Task that writes checkpoints of its groups.

    It reads the groups' committed offsets every ``checkpoints.intervalSeconds``. It writes a
    checkpoint when the offset can be translated exactly, or when ``_COVERED_TIMEOUT_S`` has passed.
    If a permission is missing, the task reports that, does not fail, and tries again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._checkpoints = GroupCheckpoints(self.context)
        self._groups: tuple[str, ...] = ()
        self._next_read_s = self._wait_until_s = 0.0

    def restore(self) -> None:
        """Do nothing: the logs are read when they are needed."""

    def run_once(self) -> float:
        """Read committed offsets if that is due, and write checkpoints."""
        try:
            wait_s = self._advance()
        except OwnershipLost:
            raise
        except HeadraceError as error:
            self.problem = error if isinstance(error, Retriable) else Retriable(str(error))
            return _RETRY_INTERVAL_S if isinstance(error, Fatal) else _POLL_S
        self.problem = self._checkpoints.problem
        self._report()
        return wait_s

    @property
    def groups(self) -> Mapping[str, int]:
        """Number of unread records by group, as in ``GroupCheckpoints.unread``. Thread-safe."""
        return self._checkpoints.unread

    @property
    def translations(self) -> Mapping[str, int]:
        """Number of translations by precision, as in ``GroupCheckpoints``. Thread-safe."""
        return self._checkpoints.translations

    def close(self) -> None:
        self._checkpoints.close()

    def _advance(self) -> float:
        now_s, interval_s = self.clock.monotonic(), self.context.spec.checkpoints.interval_seconds
        groups = self.ownership.task.spec.groups
        if groups != self._groups or now_s >= self._next_read_s:
            self._checkpoints.read(groups)
            self._groups, self._next_read_s = groups, now_s + interval_s
            self._wait_until_s = now_s + min(_COVERED_TIMEOUT_S, interval_s / 2)
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
            None: "without a checkpoint, as no offset sync up to them is known",
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
