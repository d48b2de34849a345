"""Plan or result of ``headrace failover``, as JSON, as tables and in sentences."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from headrace.api import TopicPartition, time_text
from headrace.cli.screen.output import show_rows
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.group_report import EARLIER
from headrace.connect.checkpoint.groups import GroupPartition
from headrace.connect.failover.survey import LateCommit, Survey
from headrace.connect.failover.switch import Switched
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.losses import lost_offsets
from headrace.connect.topics.losses import sentence as loss_sentence
from headrace.replication import Applied, Precision
from headrace.sentences import first_few

_Json = dict[str, Any]
_MAX_LISTED = 5
_GROUP_NOTES = {
    Applied.ACTIVE: "left alone: it has members at the target",
    Applied.FOREIGN: "left alone: consumers of the target have committed",
    Applied.LATER: "left alone: the group of the target is further already",
    Applied.REFUSED: "not set: the target refuses it",
}

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
    """Commits of groups on the source after the groups' offsets on the target were set."""
    watched: bool = False
    """True if a driver watches the source from now on."""
    losses_refused: bool = False
    """True if copies are incomplete, and the user has not accepted exactly the number of incomplete
    partitions."""


def format_growth(grew: Mapping[TopicPartition, int]) -> str:
    """Return a sentence, for example ``the source still grows: orders/0 +12, orders/1 +3``."""
    return f"the source still grows: {_listed(grew, '+')}"


def sentence(behind: Mapping[TopicPartition, int]) -> str:
    """Return how far partitions are behind, such as ``12 offsets (orders/0 10, orders/1 2)``."""
    return f"{sum(behind.values()):,} offsets ({_listed(behind)})"


def _listed(numbers: Mapping[TopicPartition, int], sign: str = "") -> str:
    largest = sorted(numbers.items(), key=lambda one: (-one[1], one[0]))
    named = [f"{at.topic}/{at.partition} {sign}{n:,}" for at, n in largest]
    return first_few(named, _MAX_LISTED)


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
        "lateCommits": _late_entries(outcome.late_commits),
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
        "sourceWatched": outcome.watched,
        "problems": list(outcome.problems),
    }


def is_failed(found: _Json) -> bool:
    """Return True if losses prevent the fail-over, or if it is incomplete."""
    return bool(found["lossesRefused"]) or found["done"] == "incomplete"


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
    if found["done"] != "watch ended":
        _show_tables(found, wide=wide)
    for line in _sentences(found):
        click.echo(line)


def _show_tables(found: _Json, *, wide: bool) -> None:
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


def _about_outcome(found: _Json) -> list[str]:
    lines = []
    match found["done"]:
        case "dry run":
            lines.append("Nothing was changed.")
        case "aborted":
            rest = "copies again" if found["stateSet"] else f"copies again {_ONCE_RUNNING}"
            lines.append(f"{found['flow']} is not failed over any more, and {rest}.")
        case "unchanged":
            lines.append(f"{found['flow']} is not failed over: nothing is changed.")
        case "watch ended":
            lines.append(f"The source of {found['flow']} is not watched any more.")
        case "refused":
            lines.append(f"{found['flow']} is not failed over.")
        case "incomplete":
            lines.append(
                f"{found['flow']} is not completely failed over: correct the errors below, and run "
                "the command again before applications start at the target."
            )
        case _:
            stopped = ", and stopped" if found["stateSet"] else ""
            lines.append(
                f"{found['flow']} is failed over{stopped}: start applications at the target."
            )
            lines += _about_watch(found)
    return lines


def _sentences(found: _Json) -> list[str]:
    lines = _about_outcome(found)
    lines += _group_sentences(found)
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


def _about_watch(found: _Json) -> list[str]:
    """Return sentences that say whether a driver watches the source for further writes."""
    if found["sourceWatched"]:
        return [
            "A driver watches the source: the condition SourceStillWritten in `headrace status` "
            f"names producers that still write there. `headrace failover {found['flow']} "
            "--end-watch` ends the watch."
        ]
    if not found["planned"]:
        return []
    return [
        "No driver watches the source: records that a forgotten producer writes there are not "
        "noticed."
    ]


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


def group_entries(groups: GroupCheckpoints) -> list[_Json]:
    """Return the offsets of groups on both clusters as JSON."""
    left = groups.applier.left
    return [
        {
            "group": position.group,
            "topic": position.at.topic,
            "partition": position.at.partition,
            "sourceOffset": one.source_offset,
            "translatedOffset": one.target_offset,
            "targetOffset": (held := left.get(position)),
            "skipped": None if held is None else max(0, held - one.target_offset),
            "readAgain": None if held is None else max(0, one.target_offset - held),
            "exact": groups.precision.get(position) is Precision.EXACT,
            "note": _note(groups, position),
        }
        for position, one in sorted(groups.written.items(), key=lambda item: item[0])
    ]


def _note(groups: GroupCheckpoints, position: GroupPartition) -> str:
    if note := _GROUP_NOTES.get(groups.applier.found.get(position, Applied.SET)):
        return note
    return EARLIER if groups.precision.get(position) is Precision.CONSERVATIVE else ""


def _late_entries(late: Mapping[GroupPartition, LateCommit]) -> list[_Json]:
    """Return the late commits of groups on the source as JSON."""
    return [
        {
            "group": position.group,
            "topic": position.at.topic,
            "partition": position.at.partition,
            "sourceOffset": one.before,
            "laterOffset": one.after,
        }
        for position, one in sorted(late.items())
    ]


def _group_sentences(found: _Json) -> Iterator[str]:
    """Yield sentences about groups that skip records, read them again, or committed late."""
    for group in dict.fromkeys(one["group"] for one in found["groups"]):
        of_group = [one for one in found["groups"] if one["group"] == group]
        skipped = sum(one["skipped"] or 0 for one in of_group)
        again = sum(one["readAgain"] or 0 for one in of_group)
        if skipped or again:
            would = "would skip" if found["done"] == "dry run" else "skips"
            yield (
                f"Group {group} {would} at most {skipped:,} records at the target, and at most "
                f"{again:,} are read again."
            )
    for group in dict.fromkeys(one["group"] for one in found["lateCommits"]):
        yield _late_commits([one for one in found["lateCommits"] if one["group"] == group])


def _late_commits(commits: Sequence[_Json]) -> str:
    """Return a sentence about the late commits of one group."""
    changes = [
        f"{one['topic']}/{one['partition']} from "
        f"{'none' if one['sourceOffset'] is None else one['sourceOffset']} to {one['laterOffset']}"
        for one in commits
    ]
    count = sum(abs(one["laterOffset"] - (one["sourceOffset"] or 0)) for one in commits)
    return (
        f"Group {commits[0]['group']} committed on the source after its offset on the target was "
        f"set, by {count:,} offsets: {first_few(changes, _MAX_LISTED)}. Stop its clients, "
        "and run the command again."
    )
