"""``headrace failover``: fails a flow over, so that applications resume on its target."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import click

from headrace.api import FlowState, TopicPartition, time_text
from headrace.cli.flow.failover_groups import group_entries, group_sentences, late_entries
from headrace.cli.flow.flow_access import Document, of_flow, running_flow
from headrace.cli.flow.flow_verbs import Flows
from headrace.cli.screen.output import show_rows
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.groups import GroupPartition, other_groups
from headrace.connect.failover.survey import (
    LateCommit,
    Survey,
    allow_writes,
    deny_writes,
    plan_groups,
    settle_groups,
    survey,
    survey_target,
)
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.failover_switch import Switched, Wish, abort, switch, switch_deleted
from headrace.connect.takeover.fenced import end_open_transactions
from headrace.connect.topics.losses import lost_offsets
from headrace.connect.topics.losses import sentence as loss_sentence
from headrace.errors import Fatal, GaveUp, HeadraceError, InvalidSpec, Retriable

_Json = dict[str, Any]
_MOST = 5
_ONCE_RUNNING = "once it runs with spec.state Running, which this command did not set"


@dataclass(frozen=True)
class FailoverResult:
    """Result of one execution of the command."""

    done: str
    planned: bool
    found: Survey
    switched: Mapping[TopicPartition, Switched] = field(default_factory=dict)
    groups: GroupCheckpoints | None = None
    lag: Mapping[str, int] = field(default_factory=dict)
    """Lag in records and seconds that the flow's drivers reported last."""
    problems: tuple[str, ...] = ()
    late_commits: Mapping[GroupPartition, LateCommit] = field(default_factory=dict)
    """Commits of groups on the source after their groups on the target were set."""
    losses_refused: bool = False
    """True if copies are incomplete and the user has not accepted exactly these partitions."""


def growth(grew: Mapping[TopicPartition, int]) -> str:
    """Return a sentence, for example ``the source still grows: orders/0 +12, orders/1 +3``."""
    return f"the source still grows: {_listed(grew, '+')}"


def sentence(behind: Mapping[TopicPartition, int]) -> str:
    """Return a text, for example ``12 offsets (orders/0 10, orders/1 2)``."""
    return f"{sum(behind.values()):,} offsets ({_listed(behind)})"


def _listed(numbers: Mapping[TopicPartition, int], sign: str = "") -> str:
    largest = sorted(numbers.items(), key=lambda one: (-one[1], one[0]))
    named = [f"{at.topic}/{at.partition} {sign}{n:,}" for at, n in largest[:_MOST]]
    more = len(largest) - _MOST
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def document(context: FlowContext, outcome: FailoverResult, *, state_set: bool) -> _Json:
    """Return the plan or result as JSON.

    ``state_set`` is False for a flow of a manifest that does not run on this machine.
    """
    found = outcome.found
    return {
        "flow": context.name,
        "done": outcome.done,
        "planned": outcome.planned,
        "stateSet": state_set,
        "partitions": [_partition(at, outcome) for at in sorted(found.partitions)],
        "groups": group_entries(outcome.groups) if outcome.groups else [],
        "lateCommits": late_entries(outcome.late_commits),
        "losses": [
            {
                **lost_offsets(at, one).model_dump(mode="json", by_alias=True),
                "sentence": loss_sentence(context, at, one),
                "accepted": at not in found.not_accepted or not outcome.losses_refused,
            }
            for at, losses in found.losses.items()
            for one in losses
        ],
        "lossesRefused": outcome.losses_refused,
        "notCopied": sum(found.behind.values()),
        "lagSeen": dict(outcome.lag),
        "progressStored": time_text(found.seen_ms) if found.seen_ms else None,
        "progressAgeSeconds": round(time.time() - found.seen_ms / 1000) if found.seen_ms else None,
        "problems": list(outcome.problems),
    }


def is_refused(found: _Json) -> bool:
    """Return True if losses prevent the fail-over."""
    return bool(found["lossesRefused"])


def _partition(at: TopicPartition, outcome: FailoverResult) -> _Json:
    one, switched = outcome.found.partitions[at], outcome.switched.get(at)
    switch = switched.switch if switched else one.switch
    return {
        "topic": at.topic,
        "partition": at.partition,
        "sourceEnd": switch.source_end if switch else one.source_end,
        "copiedTo": one.stored.source_offset if one.stored else None,
        "notCopied": max(0, one.behind),
        "switchedAt": time_text(switch.time_ms) if switch else None,
        "targetEnd": switch.target_end if switch else None,
        **({"unfenced": list(switched.progress.unfenced)} if switched else {}),
        **({"notStored": switched.unstored} if switched else {}),
    }


def show_outcome(found: _Json, *, wide: bool = False) -> None:
    """Print the plan or result as tables and sentences."""
    show_rows(
        ("PARTITION", "SOURCE END", "COPIED TO", "NOT COPIED", "TARGET END"),
        (
            (
                f"{one['topic']}/{one['partition']}",
                one["sourceEnd"],
                one["copiedTo"],
                one["notCopied"],
                one["targetEnd"],
            )
            for one in found["partitions"]
        ),
        wide=wide,
    )
    if found["groups"]:
        click.echo()
        show_rows(
            (
                "GROUP",
                "PARTITION",
                "ON SOURCE",
                "TRANSLATED",
                "ON TARGET",
                "SKIPPED",
                "READ AGAIN",
                "NOTE",
            ),
            (
                (
                    one["group"],
                    f"{one['topic']}/{one['partition']}",
                    one["sourceOffset"],
                    one["translatedOffset"],
                    one["targetOffset"],
                    one["skipped"],
                    one["readAgain"],
                    one["note"],
                )
                for one in found["groups"]
            ),
            wide=wide,
        )
    for line in _sentences(found):
        click.echo(line)


def _sentences(found: _Json) -> list[str]:
    lines = []
    match found["done"]:
        case "dry run":
            lines.append("Nothing was changed.")
        case "aborted":
            rest = "copies again" if found["stateSet"] else f"copies again {_ONCE_RUNNING}"
            lines.append(f"{found['flow']} is not failed over any more, and {rest}.")
        case "unchanged":
            lines.append(f"{found['flow']} is not failed over: nothing is changed.")
        case "refused":
            lines.append(f"{found['flow']} is not failed over.")
        case _:
            stopped = ", and stopped" if found["stateSet"] else ""
            lines.append(
                f"{found['flow']} is failed over{stopped}: start applications at the target."
            )
    lines += group_sentences(found)
    if not found["planned"]:
        lines.append(
            f"Not copied, as far as it is known: {found['notCopied']:,} offsets. The flow stored "
            f"progress last at {found['progressStored']}, {found['progressAgeSeconds']} s ago: "
            "later records of the source are not known."
        )
    if not found["planned"] and (lag := found["lagSeen"]):
        lines.append(
            f"The drivers were {lag.get('records', 0):,} records and {lag.get('seconds', 0):,} s "
            "behind when they last reached the source."
        )
    if any(one.get("unfenced") for one in found["partitions"]):
        lines.append(
            "Not every earlier writer could be fenced (a permission is missing, or the target has "
            "no transactions): an isolated driver may append records after the switch, for an "
            "hour at most."
        )
    lines += [f"Lost: {one['sentence']}." for one in found["losses"]]
    if found["lossesRefused"]:
        lines.append(_refusal(found["losses"]))
    elif found["losses"]:
        lines.append("These losses are accepted.")
    return lines + [f"But {problem}." for problem in found["problems"]]


def _refusal(losses: Sequence[_Json]) -> str:
    """Return advice about losses, or about a wrong number in --accept-losses."""
    at = {(one["topic"], one["partition"]) for one in losses if not one["accepted"]}
    if at:
        return (
            f"The copies of {len(at)} partitions are incomplete: reset or rebuild these "
            f"partitions, or accept the losses by --accept-losses {len(at)}."
        )
    known = "The losses are accepted already" if losses else "No copy is known to be incomplete"
    return f"{known}: leave out --accept-losses."


_RELEASED_WITHIN_S = 60.0
_POLL_S = 1.0
_DENIED_WITHIN_S = 10.0


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
@of_flow("does not run", show_outcome, failed=is_refused)
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

    The plan lists each partition whose copy lacks records because of a loss. Such a fail-over is
    refused with exit code 1, until --accept-losses names the number of these partitions.

    The brokers must be reachable from this machine.

    Examples:
      headrace failover orders --dry-run
      headrace failover orders --deny-writes
      headrace failover orders --abort
      headrace failover orders -n shop --secrets secrets
    """
    run = _Run(context, flows, _Options(**options))
    outcome = run.undo() if run.options.aborts else run.fail_over()
    return document(context, outcome, state_set=flows is not None)


@dataclass(frozen=True)
class _Options:
    dry_run: bool
    source_is_gone: bool
    deny_writes: bool
    aborts: bool
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
        planned = not self.options.source_is_gone
        if self.options.deny_writes and not planned:
            raise InvalidSpec("--deny-writes needs the source: leave out --source-is-gone")
        found = self._survey()
        if self.options.dry_run:
            with closing(GroupCheckpoints(self.context, creates=False)) as groups:
                why = [*_why_not(self.context, found), *self._planned_groups(groups)]
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
            found = self._survey()  # with what was committed before the stop
            if self._losses_refused(found):  # noticed when the flow stopped
                return FailoverResult("refused", planned, found, losses_refused=True)
        switched, put_off = self._switch(found)
        groups, late = GroupCheckpoints(self.context), dict[GroupPartition, LateCommit]()
        with closing(groups):
            if self.context.spec.checkpoints.enabled and not put_off:
                if planned:
                    late = settle_groups(self.context, groups)
                else:
                    groups.apply_written()
        problems = [str(error) for error in put_off.values()]
        problems += [str(groups.problem)] if groups.problem else []
        problems += self._untranslated()
        return FailoverResult(
            "failed over", planned, found, switched, groups, lag, tuple(problems), late
        )

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
            plan_groups(self.context, groups, planned=not self.options.source_is_gone)
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
            deadline_s = self.context.clock.monotonic() + _DENIED_WITHIN_S
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

    def _survey(self) -> Survey:
        if self.options.source_is_gone:
            return survey_target(self.context)
        return survey(self.context, self.options.quiet_seconds)

    def _drained(self, found: Survey) -> Survey:
        """Wait until the flow has copied everything, and stop it.

        Raise an error, and let the flow continue, if the source receives records in the meantime.
        """
        runs = self._runs()
        if why := _why_not(self.context, found, behind=not runs):
            raise Fatal(f"{self.context.name} is not failed over: {'; '.join(why)}")
        deadline_s = self.context.clock.monotonic() + self.options.timeout_seconds
        while found.waits:
            if self.context.clock.monotonic() > deadline_s:
                raise GaveUp(
                    f"not copied within {self.options.timeout_seconds} s: {sentence(found.waits)}"
                    f"; the flow keeps running, see `headrace status {self.context.name}`"
                )
            found = survey(self.context, _POLL_S)
        self._stop(found)
        ends = {at: one.source_end for at, one in found.partitions.items()}
        found = self._survey()
        grew = {at: one.source_end - ends.get(at, 0) for at, one in found.partitions.items()}
        late = {at: more for at, more in grew.items() if more}
        if late or found.active:
            if runs:
                self._set_state(FlowState.RUNNING)
            reason = growth(late) if late else _in_use(self.context, found)
            raise Fatal(f"{self.context.name} is not failed over, and keeps running: {reason}")
        if self._losses_refused(found):
            if runs:
                self._set_state(FlowState.RUNNING)
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

        Committed records are then final, and the switch begins after them.
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
        deadline_s = self.context.clock.monotonic() + _RELEASED_WITHIN_S
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
        planned = not self.options.source_is_gone
        done = switch(self.context, wishes, planned=planned)
        deleted = found.incomplete.keys() - found.partitions.keys()
        switch_deleted(self.context, {at: found.incomplete[at] for at in deleted}, planned=planned)
        return (
            {at: one for at, one in done.items() if isinstance(one, Switched)},
            {at: one for at, one in done.items() if isinstance(one, Retriable)},
        )


def _why_not(context: FlowContext, found: Survey, *, behind: bool = False) -> list[str]:
    """Return the reasons why a planned fail-over is refused now."""
    why = []
    if found.grew and not found.switched:
        why.append(
            f"{growth(found.grew)}: stop the producers of {context.source.name}, or "
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
