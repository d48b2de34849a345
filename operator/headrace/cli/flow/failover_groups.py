"""Consumer groups in the report of ``headrace failover``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.group_report import EARLIER
from headrace.connect.checkpoint.groups import GroupPartition
from headrace.connect.failover.survey import LateCommit
from headrace.replication import Applied, Precision
from headrace.sentences import first_few

_Json = dict[str, Any]
_MAX_LISTED = 5
_NOTES = {
    Applied.ACTIVE: "left alone: it has members at the target",
    Applied.FOREIGN: "left alone: consumers of the target have committed",
    Applied.LATER: "left alone: the group of the target is further already",
    Applied.REFUSED: "not set: the target refuses it",
}


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
    if note := _NOTES.get(groups.applier.found.get(position, Applied.SET)):
        return note
    return EARLIER if groups.precision.get(position) is Precision.CONSERVATIVE else ""


def late_entries(late: Mapping[GroupPartition, LateCommit]) -> list[_Json]:
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


def group_sentences(found: _Json) -> Iterator[str]:
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
