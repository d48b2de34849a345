"""Accounts of all records after damage of the network, and the reasons of a failure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

from rich.console import Console
from rich.table import Table
from soak.accounts import Account, Arrival, account
from soak.faults import Fault
from soak.outcome import Verdict
from soak.reading import arrivals_of, by_partition, copies_of, read_entries
from soak.wire.damage import Damage
from soak.wire.differences import CAUSE_S, Difference, of_record
from soak.wire.side_load import group_of
from soak.wire.stage import MODES, CopyMode, WireStage, copy_of
from support.flows import spec
from support.groups import committed

from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

FOREIGN = b"value-"
"""Beginning of the records that the foreign cluster has of its own."""


@dataclass(frozen=True)
class WireOutcome:
    """Outcome of a soak with damage of the network."""

    faults: Sequence[Fault]
    damages: Sequence[Damage]
    accounts: Sequence[Account]
    differences: Sequence[Difference]
    problems: Sequence[str]
    """Records on the foreign cluster, drivers that ended, and a run that failed."""
    doubts: Sequence[str]
    """Faults of the soak itself."""

    @property
    def failures(self) -> list[str]:
        unexplained = [one.text for one in self.differences if not one.explained_by]
        return [*unexplained, *self.problems]

    @property
    def verdict(self) -> Verdict:
        if self.failures:
            return Verdict.FAILED
        return Verdict.INCONCLUSIVE if self.doubts else Verdict.PASSED

    def show(self, console: Console) -> None:
        """Print all results."""
        table = Table(box=None)
        table.add_column("fault")
        table.add_column("times", justify="right")
        for kind, times in Counter(one.kind for one in self.faults).most_common():
            table.add_row(str(kind), str(times))
        records = sum(one.records for one in self.accounts)
        table.add_row("records on the source", f"{records:,}")
        table.add_row("not copied yet", f"{sum(one.behind for one in self.accounts):,}")
        table.add_row("differences", str(len(self.differences)))
        console.print(table)
        struck = Counter(f"{one.api} {one.direction}" for one in self.damages)
        console.print("Damaged: " + ", ".join(f"{n} {what}" for what, n in struck.most_common()))
        for difference in self.differences:
            if difference.explained_by:
                console.print(f"- {difference.text}: {difference.explained_by}", markup=False)
        for sentence in (*self.failures, *self.doubts):
            console.print(f"- {sentence}", markup=False, soft_wrap=True)
        console.print(self.verdict)


def account_for(
    stage: WireStage,
    acknowledged: Mapping[tuple[str, int], int],
    statuses: Mapping[str, Any],
    behind: Collection[str],
) -> tuple[list[Account], list[Difference], list[str]]:
    """Return the accounts, the differences, and the source's own losses.

    ``behind`` are the flows that have not copied all.
    """
    accounts: list[Account] = []
    differences: list[Difference] = []
    doubts: list[str] = []
    for mode in MODES:
        source = by_partition(read_entries(stage.source, mode.topic, "read_committed"))
        copy = copy_of(stage.source, mode.topic)
        target = by_partition(read_entries(stage.target, copy, "read_committed"))
        groups = [committed(at, group_of(mode.topic)) for at in (stage.source, stage.target)]
        for partition, entries in source.items():
            name = f"{mode.topic}-{partition}"
            if len(entries) < acknowledged[mode.topic, partition]:
                doubts.append(f"the source lost acknowledged records of {name}")
            at_s = {entry.offset: entry.at_s for entry in entries}
            arrivals = list(arrivals_of(target[partition], copies_of(entries)))
            one = account(
                name,
                sorted(at_s),
                arrivals,
                progress=[],
                faults=[],
                log=[],
                caught_up=mode.flow not in behind,
            )
            accounts.append(one)
            losses = statuses[mode.flow].get("losses", [])
            named = [loss for loss in losses if loss["partition"] == partition]
            differences += _differences(mode, one, arrivals, at_s, named)
            differences += _skipped(name, arrivals, *(own.get(partition) for own in groups))
    return accounts, differences, doubts


def records_on(foreign: SandboxCluster) -> list[str]:
    """Return a sentence for each topic of the foreign cluster that has records of a flow."""
    found = []
    for topic in Admin(spec(foreign)).topics():
        if topic.startswith("__"):
            continue
        values = [entry.value for entry in read_entries(foreign, topic)]
        if written := sum(not value.startswith(FOREIGN) for value in values):
            found.append(f"{written} records of the flows are in {topic} of the foreign cluster")
    return found


def _differences(
    mode: CopyMode,
    one: Account,
    arrivals: Sequence[Arrival],
    at_s: Mapping[int, float],
    losses: Sequence[Mapping[str, Any]],
) -> Iterator[Difference]:
    for first, last in one.missing:
        named = [loss for loss in losses if _covers(loss, first, last)]
        why = f"the flow named this loss: {named[0]}" if named else ""
        text = f"{one.name}: source offsets {first} to {last} are missing on the target"
        yield of_record(text, at_s[first], why)
    for loss in losses:
        if not any(_covers(loss, first, last) for first, last in one.missing):
            noticed_s = datetime.fromisoformat(loss["time"]).timestamp()
            text = f"{one.name}: the flow names a loss that is none: {loss}"
            yield Difference(text, noticed_s - CAUSE_S, noticed_s)
    doubled = [repeat.arrival for repeat in one.repeats]
    moved = [a for a in arrivals if mode.preserved and a.target_offset != a.source_offset]
    for word, wrong in (("doubled", doubled), ("reordered", one.reordered), ("moved", moved)):
        if wrong:
            where = ", ".join(f"{a.source_offset} at {a.target_offset}" for a in wrong[:5])
            text = f"{one.name}: {len(wrong)} records are {word}: {where}"
            yield of_record(text, at_s.get(wrong[0].source_offset, 0.0))
    if one.foreign:
        text = f"{one.name}: {one.foreign} aborted or foreign records on the target"
        yield Difference(text, 0.0, 0.0)


def _skipped(
    name: str,
    arrivals: Sequence[Arrival],
    source: tuple[int, str] | None,
    target: tuple[int, str] | None,
) -> Iterator[Difference]:
    """Compare the offsets of a group, which may lack on the target but not skip a record."""
    if source is None or target is None:
        return
    skipped = [a for a in arrivals if a.source_offset >= source[0] and a.target_offset < target[0]]
    if skipped:
        text = (
            f"{name}: a group at source offset {source[0]} is at target offset {target[0]}, and "
            f"would skip {len(skipped)} records"
        )
        yield Difference(text, 0.0, inf, of_group=True)


def _covers(loss: Mapping[str, Any], first: int, last: int) -> bool:
    return bool(loss["firstOffset"] <= first and last <= loss.get("lastOffset", last))
