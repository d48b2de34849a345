"""What ``headrace failover`` found and did, as a table and for programs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from headrace.api import TopicPartition, time_text
from headrace.cli.screen.tables import show_rows
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.failover.failover import Survey
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.switching import Switched
from headrace.connect.topics.losses import lost_offsets
from headrace.connect.topics.losses import sentence as loss_sentence
from headrace.replication import Applied, Precision

_Json = dict[str, Any]
_MOST = 5
_NOTES = {
    Applied.ACTIVE: "left alone: it has members at the target",
    Applied.FOREIGN: "left alone: consumers of the target have committed",
    Applied.LATER: "left alone: the group of the target is further already",
    Applied.REFUSED: "not set: the target refuses it",
}


@dataclass(frozen=True)
class Outcome:
    """Of one command."""

    done: str
    planned: bool
    found: Survey
    switched: Mapping[TopicPartition, Switched] = field(default_factory=dict)
    groups: GroupCheckpoints | None = None
    lag: Mapping[str, int] = field(default_factory=dict)
    """Records and seconds, as the flow's drivers saw it last."""
    problems: tuple[str, ...] = ()
    losses_refused: bool = False
    """Whether copies are incomplete and the user has not accepted exactly these partitions."""


def growth(grew: Mapping[TopicPartition, int]) -> str:
    """``orders/0 grew by 12, orders/1 by 3``."""
    return f"the source still grows: {_listed(grew, '+')}"


def sentence(behind: Mapping[TopicPartition, int]) -> str:
    """``12 offsets: orders/0 (10), orders/1 (2)``."""
    return f"{sum(behind.values()):,} offsets ({_listed(behind)})"


def _listed(numbers: Mapping[TopicPartition, int], sign: str = "") -> str:
    largest = sorted(numbers.items(), key=lambda one: (-one[1], one[0]))
    named = [f"{at.topic}/{at.partition} {sign}{n:,}" for at, n in largest[:_MOST]]
    more = len(largest) - _MOST
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def document(context: FlowContext, outcome: Outcome) -> _Json:
    """All that is known, for programs."""
    found = outcome.found
    return {
        "flow": context.name,
        "done": outcome.done,
        "planned": outcome.planned,
        "partitions": [_partition(at, outcome) for at in sorted(found.partitions)],
        "groups": _groups(outcome.groups) if outcome.groups else [],
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
    """Return whether losses prevent the fail-over."""
    return bool(found["lossesRefused"])


def _partition(at: TopicPartition, outcome: Outcome) -> _Json:
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


def _groups(groups: GroupCheckpoints) -> list[_Json]:
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
            "note": _NOTES.get(groups.applier.found.get(position, Applied.SET), ""),
        }
        for position, one in sorted(groups.written.items(), key=lambda item: item[0])
    ]


def show_outcome(found: _Json, *, wide: bool = False) -> None:
    """Print the plan or result of a fail-over for people."""
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
            lines.append(f"{found['flow']} is not failed over any more, and copies on.")
        case "unchanged":
            lines.append(f"{found['flow']} is not failed over: nothing is changed.")
        case "refused":
            lines.append(f"{found['flow']} is not failed over.")
        case _:
            lines.append(
                f"{found['flow']} is failed over, and stopped: start applications at the target."
            )
    for group in dict.fromkeys(one["group"] for one in found["groups"]):
        of_group = [one for one in found["groups"] if one["group"] == group]
        skipped = sum(one["skipped"] or 0 for one in of_group)
        again = sum(one["readAgain"] or 0 for one in of_group)
        if skipped or again:
            would = "would skip" if found["done"] == "dry run" else "skips"
            lines.append(
                f"Group {group} {would} at most {skipped:,} records at the target, and at most "
                f"{again:,} are read again."
            )
    if not found["planned"]:
        lines.append(
            f"Not copied, as far as it is known: {found['notCopied']:,} offsets. The flow stored "
            f"progress last at {found['progressStored']}, {found['progressAgeSeconds']} s ago: "
            "what came to the source since is not known."
        )
    if not found["planned"] and (lag := found["lagSeen"]):
        lines.append(
            f"The drivers were {lag.get('records', 0):,} records and {lag.get('seconds', 0):,} s "
            "behind when they saw the source last."
        )
    if any(one.get("unfenced") for one in found["partitions"]):
        lines.append(
            "Not every earlier writer could be fenced (a permission is missing, or the target has "
            "no transactions): a driver that was cut off may append behind the switch, for an "
            "hour at most."
        )
    lines += [f"Lost: {one['sentence']}." for one in found["losses"]]
    if found["lossesRefused"]:
        lines.append(_refusal(found["losses"]))
    elif found["losses"]:
        lines.append("These losses are accepted.")
    return lines + [f"But {problem}." for problem in found["problems"]]


def _refusal(losses: Sequence[_Json]) -> str:
    """Say what to do about losses, or about a wrong number of accepted ones."""
    at = {(one["topic"], one["partition"]) for one in losses if not one["accepted"]}
    if at:
        return (
            f"The copies of {len(at)} partitions are incomplete: reset or rebuild these "
            f"partitions, or accept the losses by --accept-losses {len(at)}."
        )
    known = "The losses are accepted already" if losses else "No copy is known to be incomplete"
    return f"{known}: leave out --accept-losses."
