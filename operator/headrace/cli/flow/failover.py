"""``headrace failover``: fails a flow over, so that applications resume on its target."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import click

from headrace.api import FlowState, TopicPartition
from headrace.cli.flow.failover_report import (
    FailoverResult,
    document,
    format_growth,
    is_failed,
    sentence,
    show_outcome,
)
from headrace.cli.flow.flow_access import Document, of_flow, running_flow
from headrace.cli.flow.flow_verbs import Flows
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.groups import GroupPartition, other_groups
from headrace.connect.failover.survey import (
    LateCommit,
    Survey,
    allow_writes,
    committed_offsets,
    deny_writes,
    plan_groups,
    settle_groups,
    survey,
    survey_target,
)
from headrace.connect.failover.switch import Switched, Wish, abort, switch, switch_deleted
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.fenced import end_open_transactions
from headrace.errors import Fatal, GaveUp, HeadraceError, InvalidSpec, Retriable

_RELEASED_TIMEOUT_S = 60.0
_POLL_S = 1.0
_DENIED_TIMEOUT_S = 10.0


@click.command()
@click.option("--dry-run", is_flag=True, help="Plan only, without a change.")
@click.option(
    "--source-is-gone", is_flag=True, help="Disaster: no request is sent to the source cluster."
)
@click.option(
    "--deny-writes",
    is_flag=True,
    help="ACLs that deny writes to the source's topics until --abort.",
)
@click.option(
    "--abort", "aborts", is_flag=True, help="End of the fail-over: the flow copies again."
)
@click.option("--end-watch", "ends_watch", is_flag=True, help="End of the watch of the old source.")
@click.option(
    "--accept-losses",
    type=click.IntRange(min=1),
    metavar="N",
    help="Fail over although the copies of N partitions are incomplete, as the plan says.",
)
@click.option(
    "--quiet-seconds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Idle time required on the source, in seconds.",
)
@click.option(
    "--timeout-seconds",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for copying the rest, in seconds.",
)
@of_flow("does not run", show_outcome, failed=is_failed)
def command(context: FlowContext, flows: Flows | None, **options: Any) -> Document:
    """Fail over FLOW: let applications resume on its target.

    Stop producers and consumers of the source first. The fail-over is refused while the source
    receives records. The command waits until everything is copied, stops the flow, fences its
    producers on the target, and sets the offsets of the consumer groups there. If the command is
    interrupted, run it again.

    With --deny-writes, only super users can write to the topics of the source afterwards. --abort
    removes these ACLs, and so does a fail-over that is refused.

    With --source-is-gone, the command waits for nothing. It counts the records that are known to
    be missing on the target. Groups resume at their last checkpoints.

    After a planned fail-over, one driver watches the source and reports producers that still write
    to it, until --end-watch.

    The plan lists each partition whose copy lacks records because of a loss. Such a fail-over is
    refused with exit code 1, until --accept-losses names the number of these partitions.

    The brokers must be reachable from this machine.

    Examples:
      headrace failover orders --dry-run
      headrace failover orders --deny-writes
      headrace failover orders --abort
      headrace failover orders --end-watch
      headrace failover orders -n shop --secrets secrets
    """
    run = _Run(context, flows, _Options(**options))
    if run.options.ends_watch:
        outcome = run.end_watch()
    else:
        outcome = run.undo() if run.options.aborts else run.fail_over()
    return document(context, outcome, state_set=flows is not None)


@dataclass(frozen=True)
class _Options:
    dry_run: bool
    source_is_gone: bool
    deny_writes: bool
    aborts: bool
    ends_watch: bool
    accept_losses: int | None
    quiet_seconds: int
    timeout_seconds: int


@dataclass(frozen=True)
class _Run:
    """One execution of the command."""

    context: FlowContext
    flows: Flows | None
    """Flows of the run or cluster, or None if the flow does not run."""
    options: _Options

    def fail_over(self) -> FailoverResult:
        planned = self._planned
        if self.options.deny_writes and not planned:
            raise InvalidSpec("--deny-writes needs the source: leave out --source-is-gone")
        committed = self._committed()
        found = self._survey()
        if self.options.dry_run:
            with closing(GroupCheckpoints(self.context, creates=False)) as groups:
                why = [*_refusal_reasons(self.context, found), *self._planned_groups(groups)]
            why += self._untranslated()
            lag = self._lag()
            return FailoverResult(
                "dry run",
                planned,
                found,
                groups=groups,
                lag=lag,
                problems=tuple(why),
                losses_refused=self._losses_refused(found),
            )
        if self._losses_refused(found):
            return FailoverResult("refused", planned, found, losses_refused=True)
        if planned and not found.switched:
            found = self._closed(found) if self.options.deny_writes else self._drained(found)
        lag = self._lag() if not planned else {}
        if not planned:
            self._stop(found)
            found = self._survey()  # with records that were committed before the stop
            if self._losses_refused(found):  # losses since the first survey
                return FailoverResult("refused", planned, found, losses_refused=True)
        switched, put_off = self._switch(found)
        groups, late = GroupCheckpoints(self.context), dict[GroupPartition, LateCommit]()
        with closing(groups):
            if self.context.spec.checkpoints.enabled and not put_off:
                if planned:
                    late = settle_groups(self.context, groups, committed)
                else:
                    groups.apply_written()
        incomplete = [str(error) for error in put_off.values()]
        incomplete += [str(groups.problem)] if groups.problem else []
        problems = (*incomplete, *self._untranslated())
        done = "incomplete" if incomplete else "failed over"
        # After a disaster, the end of the source's log, which the watch needs, is unknown.
        watched = (
            not put_off
            and all(one.switch.planned for one in switched.values())
            and self._watch(enabled=True)
        )
        return FailoverResult(done, planned, found, switched, groups, lag, problems, late, watched)

    def _committed(self) -> Mapping[GroupPartition, int]:
        """Return the groups' offsets before the fail-over; empty if they are not needed."""
        enabled = self.context.spec.checkpoints.enabled and not self.options.dry_run
        return committed_offsets(self.context) if enabled and self._planned else {}

    @property
    def _planned(self) -> bool:
        return not self.options.source_is_gone

    def _losses_refused(self, found: Survey) -> bool:
        """Return True if losses are neither accepted by an option nor by an earlier fail-over.

        Return True also if the option names a wrong number.
        """
        wanted, count = self.options.accept_losses, len(found.not_accepted)
        return count != wanted if count else wanted not in (None, len(found.losses))

    def _planned_groups(self, groups: GroupCheckpoints) -> list[str]:
        """Plan the offsets of groups, and return reasons why the plan is incomplete."""
        if not self.context.spec.checkpoints.enabled:
            return []
        try:
            plan_groups(self.context, groups, planned=self._planned)
        except HeadraceError as error:
            return [f"the plan for consumer groups is not known: {error}"]
        return [str(groups.problem)] if groups.problem else []

    def _untranslated(self) -> list[str]:
        """Return a sentence for each group whose offsets are not translated."""
        if self.options.source_is_gone or not self.context.spec.checkpoints.enabled:
            return []
        try:
            found = other_groups(self.context)
        except HeadraceError as error:
            return [str(error)]
        return [one.sentence for one in found.untranslated] + list(map(str, found.unread.values()))

    def _closed(self, found: Survey) -> Survey:
        """Deny writes to the source's topics, and wait until the flow has copied everything.

        Allow writes again if that fails.
        """
        deny_writes(self.context, {at.topic for at in found.partitions})
        try:
            # Brokers need a moment to apply the ACLs. Records that arrive until then are also
            # copied.
            deadline_s = self.context.clock.monotonic() + _DENIED_TIMEOUT_S
            found = self._survey()
            while found.grew and self.context.clock.monotonic() < deadline_s:
                found = self._survey()
            return self._drained(found)
        except BaseException:
            allow_writes(self.context)
            raise

    def undo(self) -> FailoverResult:
        found = survey_target(self.context)
        switched = {at: one.stored for at, one in found.partitions.items() if one.stored}
        switched = {at: one for at, one in switched.items() if one.switch}
        allowed = frozenset() if self.options.dry_run else allow_writes(self.context)
        if not switched and not allowed:
            return FailoverResult("unchanged", True, found)
        if not self.options.dry_run:
            abort(self.context, switched)
            self._set_state(FlowState.RUNNING)
        return FailoverResult("dry run" if self.options.dry_run else "aborted", True, found)

    def end_watch(self) -> FailoverResult:
        if not self._watch(enabled=False):
            raise InvalidSpec(
                f"{self.context.name} does not run on this machine, so no driver watches its "
                "source: name the namespace of a flow in a cluster (-n)"
            )
        return FailoverResult("watch ended", True, Survey({}))

    def _watch(self, *, enabled: bool) -> bool:
        """Begin or end the watch of the source; return False if the flow does not run."""
        if self.flows is not None:
            self.flows.request(self.context.name, "watch-source", enabled=enabled)
        return self.flows is not None

    def _survey(self) -> Survey:
        if self.options.source_is_gone:
            return survey_target(self.context)
        return survey(self.context, self.options.quiet_seconds)

    def _drained(self, found: Survey) -> Survey:
        """Wait until the flow has copied everything, and stop it.

        After an error, for example because the source received records, the flow continues.
        """
        runs = self._runs()
        if why := _refusal_reasons(self.context, found, behind=not runs):
            raise Fatal(f"{self.context.name} is not failed over: {'; '.join(why)}")
        deadline_s = self.context.clock.monotonic() + self.options.timeout_seconds
        while found.waits:
            if self.context.clock.monotonic() > deadline_s:
                raise GaveUp(
                    f"not copied within {self.options.timeout_seconds} s: {sentence(found.waits)}"
                    f"; the flow keeps running, see `headrace status {self.context.name}`"
                )
            found = survey(self.context, _POLL_S)
        try:
            return self._stopped(found)
        except BaseException:
            if runs:
                self._set_state(FlowState.RUNNING)
            raise

    def _stopped(self, found: Survey) -> Survey:
        """Stop the flow, and return the last survey. Raise an error if it cannot be failed over."""
        self._stop(found)
        ends = {at: one.source_end for at, one in found.partitions.items()}
        found = self._survey()
        grew = {at: one.source_end - ends.get(at, 0) for at, one in found.partitions.items()}
        late = {at: more for at, more in grew.items() if more}
        if late or found.active:
            reason = format_growth(late) if late else _in_use(self.context, found)
            raise Fatal(f"{self.context.name} is not failed over, and keeps running: {reason}")
        if self._losses_refused(found):
            raise Fatal(
                f"{self.context.name} is not failed over: a new loss was detected, see "
                f"`headrace failover {self.context.name} --dry-run`"
            )
        return found

    def _runs(self) -> bool:
        """Return True if the flow's current state is Running.

        The manifest that the user gave may be older than the flow's spec.
        """
        if self.flows is None:
            return False
        return running_flow(self.flows, self.context.name).spec.state is FlowState.RUNNING

    def _stop(self, found: Survey) -> None:
        """Stop the flow, and end the transactions that its drivers left open.

        After that, the set of committed records on the target no longer changes.
        """
        self._wait_until_released()
        end_open_transactions(self.context, found.partitions.keys())

    def _wait_until_released(self) -> None:
        """Stop the flow, and wait until its drivers have released all tasks.

        All records that the drivers sent are then acknowledged. After 60 s, print a warning and
        return.
        """
        if self.flows is None:
            return
        self._set_state(FlowState.STOPPED)
        deadline_s = self.context.clock.monotonic() + _RELEASED_TIMEOUT_S
        while holders := self._holders():
            if self.context.clock.monotonic() > deadline_s:
                click.echo(
                    f"{', '.join(holders)} did not release its tasks: it is fenced.", err=True
                )
                return
            time.sleep(_POLL_S)

    def _holders(self) -> list[str]:
        assert self.flows is not None
        units = self.flows.request(self.context.name, "status")["units"]
        return sorted({unit["driverName"] for unit in units if unit["driverName"]})

    def _lag(self) -> Mapping[str, int]:
        """Return the lag that the flow's drivers reported last. Empty if it is unknown."""
        if self.flows is None:
            return {}
        found: Mapping[str, int] = self.flows.request(self.context.name, "status").get("lag") or {}
        return found

    def _set_state(self, state: FlowState) -> None:
        if self.flows is not None:
            self.flows.request(self.context.name, "set-state", state=str(state))

    def _switch(
        self, found: Survey
    ) -> tuple[dict[TopicPartition, Switched], dict[TopicPartition, Retriable]]:
        # Read the progress that was stored before the flow stopped.
        self.context.progress.read_to_end()
        wishes = {
            at: Wish(stored, one.source_end)
            for at, one in found.partitions.items()
            if (stored := self.context.stored(at))
        }
        planned = self._planned
        done = switch(self.context, wishes, planned=planned)
        deleted = found.incomplete.keys() - found.partitions.keys()
        switch_deleted(self.context, {at: found.incomplete[at] for at in deleted}, planned=planned)
        return (
            {at: one for at, one in done.items() if isinstance(one, Switched)},
            {at: one for at, one in done.items() if isinstance(one, Retriable)},
        )


def _refusal_reasons(context: FlowContext, found: Survey, *, behind: bool = False) -> list[str]:
    """Return the reasons why a planned fail-over is refused now."""
    why = []
    if found.grew and not found.switched:
        why.append(
            f"{format_growth(found.grew)}: stop the producers of {context.source.name}, or "
            "declare a disaster with --source-is-gone"
        )
    if found.active:
        why.append(_in_use(context, found))
    waits = found.waits
    if paused := context.pauses.among(waits):
        why.append(f"{sentence({at: waits[at] for at in paused})} are paused: resume them")
    elif behind and waits:
        why.append(f"{sentence(waits)} are not copied, and the flow does not run: resume it")
    return why


def _in_use(context: FlowContext, found: Survey) -> str:
    groups = ", ".join(sorted(found.active))
    return f"consumers of {groups} still run at {context.source.name}: stop them"
