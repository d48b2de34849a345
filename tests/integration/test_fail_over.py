"""Fail-overs with 20 consumer groups, on real brokers."""

import re
from collections.abc import Callable, Collection
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.flows import FlowRun, spec
from support.groups import commit, in_transactions, positions, read_on
from support.records import Load, arrived, count, make_topic, numbered, produce, unique
from support.rehearsal import (
    Log,
    checkpointed,
    delivered_again_and_never,
    due_after,
    fail_over,
    flow,
    headrace,
    index_of,
    places,
    read_to,
    report_of,
    reread_and_skipped,
    reverse,
)

from headrace.api import ReplicationFlow
from headrace.connect import DriverIdentity
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.failover.survey import settle_groups
from headrace.connect.runtime.context import FlowContext
from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


def commit_everywhere(cluster: SandboxCluster, name: str, topic: str, log: Log) -> dict[str, int]:
    """Commit for 20 groups: at the head, in mid-batch, inside each hole, at the end."""
    offsets = [offset for offset, _ in log]
    holes = [a + 1 for a, b in pairwise(offsets) if b - a > 1]
    places = [0, offsets[-1] + 1, *holes]
    places += offsets[7 :: len(offsets) // (20 - len(places))]
    groups = {f"{name}-{number}": at for number, at in enumerate(places[:20])}
    assert len(groups) == 20
    for group, at in groups.items():
        commit(cluster, group, topic, {0: at})
    return groups


@pytest.mark.parametrize(
    "delivery", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.long)]
)
def test_a_planned_fail_over_reads_nothing_again_and_skips_nothing(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil, delivery: str
) -> None:
    name = unique("planned")
    topic = make_topic(spec(east), name, 1)
    in_transactions(east, topic, [(40, True), (3, False), (1, True), (60, True), (2, False)])
    produce(spec(east), topic, numbered(500, 1))
    in_transactions(east, topic, [(5, True), (7, False)])
    log = positions(east, topic)
    groups = commit_everywhere(east, name, topic, log)
    with FlowRun(tmp_path, [flow(name, east, west, topic, delivery={"mode": delivery})]) as run:
        wait_until(lambda: arrived(spec(west), topic), until=lambda n: n == len(log))
        wait_until(run.ready)
        dry = fail_over(run, "--dry-run", "--quiet-seconds", "1")
        assert (dry["notCopied"], dry["problems"]) == (0, [])
        wait_until(run.ready)
        found = fail_over(run, "--quiet-seconds", "1")
        assert found["problems"] == []
        wait_until(lambda: run.condition("Ready").get("reason") == "Stopped")
        assert len(found["groups"]) == 20
        assert all(one["exact"] and not one["note"] for one in found["groups"])
        copies = positions(west, topic)
        assert len(copies) == len(log)
        assert reread_and_skipped(log, copies, groups, places(west, groups)) == (0, 0)
        (partition,) = found["partitions"]
        at_end = next(group for group, at in groups.items() if at == log[-1][0] + 1)
        assert places(west, groups)[at_end] <= partition["targetEnd"]

        again = fail_over(run, "--quiet-seconds", "1")
        assert again["partitions"] == [partition], "a command that is typed again changes nothing"

        # A controller that puts the state back, as GitOps does, copies nothing.
        produce(spec(east), topic, numbered(10, 1, first=500))
        assert headrace("flow", "resume", name)[0] == 0
        wait_until(lambda: "was failed over" in str(run.status()))
        assert len(positions(west, topic)) == len(log)
        aborted = fail_over(run, "--abort")
        assert aborted["done"] == "aborted"
        more = len(log) + 10
        wait_until(lambda: len(positions(west, topic)), until=lambda n: n == more)


def test_an_accepted_loss_of_all_copies_is_failed_over_with_its_groups(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The copies end before the offsets that progress has."""
    name = unique("deleted")
    topic = make_topic(spec(east), name, 2)
    produce(spec(east), topic, numbered(100, 2))
    group = f"{name}-group"
    commit(east, group, topic, {0: 50})
    with FlowRun(tmp_path, [flow(name, east, west, topic, tasks={"max": 1})]) as run:
        wait_until(lambda: arrived(spec(west), topic), until=lambda n: n == 100)
        wait_until(run.ready)
        Admin(spec(west)).delete_topic(topic)
        wait_until(lambda: run.status().get("losses"), until=lambda lost: len(lost or ()) == 2)
        refused, _ = headrace("failover", name, "--quiet-seconds", "1")
        found = fail_over(run, "--quiet-seconds", "1", "--accept-losses", "2")
        assert (refused, found["done"], found["problems"]) == (1, "failed over", [])
        assert all(one["accepted"] for one in found["losses"])
        assert all(one["targetEnd"] < 10 for one in found["partitions"])
        assert places(west, [group]) == {group: 0}, "the first lost offset"


class SourceInUse(Admin):
    """Source on which groups without members commit after each read of their offsets."""

    def __init__(self, cluster: SandboxCluster, topic: str, commits: dict[str, list[int]]) -> None:
        super().__init__(spec(cluster))
        self._cluster, self._topic, self._commits = cluster, topic, commits

    def committed(self, groups: Collection[str]) -> Any:
        found = super().committed(groups)
        for group, offsets in self._commits.items() if groups else ():
            if offsets:
                commit(self._cluster, group, self._topic, {0: offsets.pop(0)})
        return found


def test_offsets_that_change_during_the_switch_are_set_or_named(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("late")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(100, 1))
    manifest = flow(name, east, west, topic)
    with FlowRun(tmp_path, [manifest]) as run:
        wait_until(lambda: arrived(spec(west), topic), until=lambda n: n == 100)
        wait_until(run.ready)
        fail_over(run, "--quiet-seconds", "1")
    once, often, new = (f"{name}-{how}" for how in ("once", "often", "new"))
    commit(east, once, topic, {0: 10})
    commit(east, often, topic, {0: 10})
    commits = {once: [30], often: list(range(20, 90, 2)), new: [7]}
    context = FlowContext(
        ReplicationFlow.model_validate(manifest), DriverIdentity("command", "command-1")
    )
    context.source = SourceInUse(east, topic, commits)
    with closing(context), closing(GroupCheckpoints(context)) as groups:
        late = settle_groups(context, groups, {})
    assert places(west, [once, new]) == {once: 30, new: 7}
    (position, (before, after)) = late.popitem()
    assert (position.group, late) == (often, {})
    assert places(west, [often]) == {often: before}
    assert before is not None
    assert 10 < before < after


def test_without_its_source_it_skips_nothing_and_a_run_that_was_cut_off_writes_nothing_more(
    start_cluster: Callable[..., SandboxCluster],
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """Kill the broker while a producer sends, which continues when the broker is back."""
    gone, name = start_cluster("gone"), unique("lost")
    topic = make_topic(spec(gone), name, 1)
    manifest = flow(name, gone, west, topic)
    with FlowRun(tmp_path, [manifest]) as run, Load(spec(gone), topic, 1, 500):
        wait_until(lambda: count(spec(west), topic) > 1_000)
        groups = {f"{name}-{number}": 40 * number for number in range(20)}
        for group, at in groups.items():
            commit(gone, group, topic, {0: at})
        wait_until(lambda: checkpointed(run), until=lambda n: n == 20)
        seen = count(spec(gone), topic)
        wait_until(lambda: source_end(run), until=lambda end: end >= seen)
        cut_off = [psutil.Process(run.process.pid), *run.drivers()]
        for process in cut_off:
            process.suspend()
        # No checkpoint of these commits is written any more.
        for group, at in list(groups.items())[::2]:
            groups[group] = at + 7
            commit(gone, group, topic, {0: at + 7})
        suspended = count(spec(gone), topic)
        wait_until(lambda: count(spec(gone), topic) > suspended)
        gone.broker(1).kill()
        found = report_of("failover", "-f", str(run.file), "--source-is-gone")
        assert (found["problems"], len(found["groups"])) == ([], 20)
        (partition,) = found["partitions"]
        assert partition["unfenced"] == []
        copies = positions(west, topic)

        for process in cut_off:
            process.resume()
        wait_until(lambda: stopped(run))
        assert positions(west, topic) == copies, "nothing is behind the switch"
        assert copies[-1][0] < partition["targetEnd"]
        gone.start()
    log = positions(gone, topic)
    # An offset is a record of this log. Records unknown to the flow arrived after it saw its end.
    assert seen <= partition["sourceEnd"] <= suspended
    unknown = len(log) - partition["sourceEnd"]
    assert len(log) - len(copies) == found["notCopied"] - partition["notStored"] + unknown
    assert unknown > 0
    due, last = due_after(log, copies, groups), dict.fromkeys(groups, copies[-1][1] or b"")
    reread, skipped = delivered_again_and_never(copies, due, last, read_to(west, topic, last))
    since = {one["group"]: one["sourceOffset"] for one in found["groups"]}
    assert (reread, skipped) == (sum(at - since[group] for group, at in groups.items()), 0)
    assert reread == 7 * 10


def source_end(run: FlowRun) -> int:
    """Return the last known end of the log that is lost if the source dies now."""
    (partition,) = fail_over(run, "--source-is-gone", "--dry-run")["partitions"]
    end: int = partition["sourceEnd"]
    return end


def stopped(run: FlowRun) -> bool:
    """Return whether its source tasks have noticed that something is wrong."""
    return all(unit.get("lastError") for unit in run.units()) if run.units() else False


@pytest.mark.long
def test_with_prefixes_groups_come_back_to_the_record_that_they_had_reached(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Run the two flows side by side as well: neither copies the other's copies."""
    name = unique("prefix")
    topic = make_topic(spec(east), name, 1)
    in_transactions(east, topic, [(20, True), (3, False), (10, True)])
    produce(spec(east), topic, numbered(50, 1))
    log = positions(east, topic)
    groups = {f"{name}-{n}": log[index][0] for n, index in enumerate((0, 15, 25, 60))}
    for group, at in groups.items():
        commit(east, group, topic, {0: at})
    there = flow(name, east, west, topic)
    del there["spec"]["replicationPolicy"]
    copy = f"east.{topic}"
    with FlowRun(tmp_path, [there]) as run:
        wait_until(lambda: len(positions(west, copy)), until=lambda n: n == len(log))
        fail_over(run, "--quiet-seconds", "1")
        for group in list(groups)[:3]:
            read_on(west, group, copy, 12)
        read_on(west, f"{name}-3", copy, len(log))
        make_topic(spec(west), topic, 1)
        produce(spec(west), topic, numbered(30, 1, first=1000))
        produce(spec(east), topic, numbered(5, 1, first=50))  # never sent
        back, noted = reverse(name)
        assert f"5 offsets ({topic}/0 5) that were never sent" in noted
        assert len(re.findall("resumes at", noted)) == 4, noted
        reached = {
            n: index_of(positions(east, topic), at) for n, at in places(east, groups).items()
        }
        assert reached == {f"{name}-{n}": at for n, at in enumerate((12, 27, 37, len(log)))}
        assert reverse(name)[1] == noted, "a command that is typed again changes nothing"
        with FlowRun(tmp_path, [back]):
            fail_over(run, "--abort")
            wait_until(lambda: len(positions(west, copy)), until=lambda n: n == len(log) + 5)
            returned = f"west.{topic}"
            wait_until(lambda: arrived(spec(east), returned), until=lambda n: n == 30)
            wait_until(run.ready)
        made = {
            one
            for one in (*Admin(spec(east)).topics(), *Admin(spec(west)).topics())
            if topic in one
        }
        assert made == {topic, copy, returned}
