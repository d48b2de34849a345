"""Fail-overs with 20 consumer groups, on real brokers."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml
from support.flows import FlowRun, manifest, spec
from support.groups import commit, committed, in_transactions, positions, read_on
from support.records import Load, arrived, count, make_topic, numbered, produce, unique

from headrace.kafka import Admin
from headrace.sandbox import Cluster

WaitUntil = Callable[..., Any]
Log = Sequence[tuple[int, bytes | None]]


def flow(name: str, source: Cluster, target: Cluster, topic: str, **more: Any) -> dict[str, Any]:
    """It keeps the names of topics, and follows the groups of one test."""
    return manifest(
        name,
        source,
        target,
        topic,
        policy={"type": "Identity"},
        mover="Batch",
        groups={"include": [f"{name}-.*"]},
        discovery={"groupsSeconds": 1},
        checkpoints={"intervalSeconds": 2},
        **more,
    )


def headrace(*words: str) -> tuple[int, str]:
    """A command, its exit code and what it printed."""
    command = [sys.executable, "-m", "headrace", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def fail_over(run: FlowRun, *options: str) -> dict[str, Any]:
    code, printed = headrace("failover", run.name, "-o", "json", *options)
    assert code == 0, printed
    found: dict[str, Any] = json.loads(printed)
    return found


def commit_everywhere(cluster: Cluster, name: str, topic: str, log: Log) -> dict[str, int]:
    """20 groups: at the head, in mid-batch, inside each hole, at the end."""
    offsets = [offset for offset, _ in log]
    holes = [a + 1 for a, b in pairwise(offsets) if b - a > 1]
    places = [0, offsets[-1] + 1, *holes]
    places += offsets[7 :: len(offsets) // (20 - len(places))]
    groups = {f"{name}-{number}": at for number, at in enumerate(places[:20])}
    assert len(groups) == 20
    for group, at in groups.items():
        commit(cluster, group, topic, {0: at})
    return groups


def reread_and_skipped(
    source: Log, target: Log, left: Mapping[str, int], goes_on: Mapping[str, int]
) -> tuple[int, int]:
    """Of all groups, of what is on the target: delivered again, and never delivered."""
    assert [value for _, value in target] == [value for _, value in source[: len(target)]]
    reread = skipped = 0
    for group, at in left.items():
        due = min(len(target), index_of(source, at))
        begins = index_of(target, goes_on[group])
        reread += max(0, due - begins)
        skipped += max(0, begins - due)
    return reread, skipped


def index_of(log: Log, at: int) -> int:
    """Of the first record at or behind an offset."""
    return sum(offset < at for offset, _ in log)


def places(cluster: Cluster, groups: Mapping[str, int]) -> dict[str, int]:
    return {group: committed(cluster, group)[0][0] for group in groups}


def test_a_planned_fail_over_reads_nothing_again_and_skips_nothing(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("planned")
    topic = make_topic(spec(east), name, 1)
    in_transactions(east, topic, [(40, True), (3, False), (1, True), (60, True), (2, False)])
    produce(spec(east), topic, numbered(500, 1))
    in_transactions(east, topic, [(5, True), (7, False)])
    log = positions(east, topic)
    groups = commit_everywhere(east, name, topic, log)
    with FlowRun(tmp_path, [flow(name, east, west, topic)]) as run:
        wait_until(lambda: count(spec(west), topic), within_s=60, until=lambda n: n == len(log))
        dry = fail_over(run, "--dry-run", "--quiet-seconds", "1")
        assert (dry["notCopied"], dry["problems"], run.ready()) == (0, [], True)
        found = fail_over(run, "--quiet-seconds", "1")
        assert found["problems"] == []
        assert run.condition("Ready")["reason"] == "Stopped"
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
        assert headrace("resume", name)[0] == 0
        wait_until(lambda: "was failed over" in str(run.status()), within_s=60)
        assert len(positions(west, topic)) == len(log)
        aborted = fail_over(run, "--abort")
        assert aborted["done"] == "aborted"
        more = len(log) + 10
        wait_until(lambda: len(positions(west, topic)), within_s=90, until=lambda n: n == more)


def test_without_its_source_it_skips_nothing_and_a_run_that_was_cut_off_writes_nothing_more(
    start_cluster: Callable[..., Cluster], west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    gone, name = start_cluster("gone"), unique("lost")
    topic = make_topic(spec(gone), name, 1)
    with FlowRun(tmp_path, [flow(name, gone, west, topic)]) as run:
        with Load(spec(gone), topic, 1, 500):
            wait_until(lambda: count(spec(west), topic) > 1_000, within_s=60)
            groups = {f"{name}-{number}": 40 * number for number in range(20)}
            for group, at in groups.items():
                commit(gone, group, topic, {0: at})
            wait_until(lambda: checkpoints(run), within_s=60, until=lambda n: n == 20)
            # Of these no checkpoint is written any more.
            for group, at in list(groups.items())[::2]:
                groups[group] = at + 7
                commit(gone, group, topic, {0: at + 7})
            cut_off = [psutil.Process(run.process.pid), *run.drivers()]
            for process in cut_off:
                process.suspend()
        gone.broker(1).kill()
        code, printed = headrace("failover", "-f", str(run.file), "--source-is-gone", "-o", "json")
        assert code == 0, printed
        found = json.loads(printed)
        assert (found["problems"], len(found["groups"])) == ([], 20)
        (partition,) = found["partitions"]
        assert partition["unfenced"] == []
        copies = positions(west, topic)

        for process in cut_off:
            process.resume()
        wait_until(lambda: stopped(run), within_s=60)
        assert positions(west, topic) == copies, "nothing is behind the switch"
        assert copies[-1][0] < partition["targetEnd"]
    gone.start()
    log = positions(gone, topic)
    reread, skipped = reread_and_skipped(log, copies, groups, places(west, groups))
    assert skipped == 0
    assert reread <= 7 * 10
    lost = len(log) - len(copies)
    assert found["notCopied"] - partition["notStored"] <= lost


def reverse(name: str) -> tuple[dict[str, Any], str]:
    """The manifest of the flow back, and what is said beside it."""
    command = [sys.executable, "-m", "headrace", "reverse", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout), done.stderr


def checkpoints(run: FlowRun) -> int:
    """How many groups have an exact one for what they have committed."""
    code, printed = headrace("groups", run.name, "-o", "json")
    found = json.loads(printed)["groups"] if code == 0 else []
    return sum(one["lag"] == 0 and not one["note"] for one in found)


def stopped(run: FlowRun) -> bool:
    """Whether its source tasks have noticed that something is wrong."""
    return all(unit.get("lastError") for unit in run.units()) if run.units() else False


def test_there_and_back_and_there_again_nothing_is_missing_and_nothing_doubled(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("back")
    topic, group = make_topic(spec(east), name, 1), f"{name}-billing"
    there = flow(name, east, west, topic)
    produce(spec(east), topic, numbered(300, 1))
    commit(east, group, topic, {0: 300})
    with FlowRun(tmp_path, [there]) as run:
        wait_until(lambda: count(spec(west), topic), within_s=60, until=lambda n: n == 300)
        code, printed = headrace("reverse", name)
        assert (code, "is not failed over" in printed) == (3, True)
        fail_over(run, "--quiet-seconds", "1")
        produce(spec(east), topic, numbered(10, 1, first=300))  # never sent
        produce(spec(west), topic, numbered(50, 1, first=310))
        read_on(west, group, topic, 50)
        back, said = reverse(name)
        assert f"10 offsets ({topic}/0 10) that were never sent" in said
    expected = [record.value for record in numbered(360, 1)]
    with FlowRun(tmp_path, [back]) as run:
        wait_until(lambda: count(spec(east), topic), within_s=60, until=lambda n: n >= 360)
        again = fail_over(run, "--quiet-seconds", "1")
        assert [value for _, value in positions(east, topic)] == expected
        assert again["problems"] == []
        assert [one["note"] for one in again["groups"]] == [""]
        assert index_of(positions(east, topic), places(east, {group: 0})[group]) == 360
        again_there, _ = reverse(run.name)
    produce(spec(east), topic, numbered(5, 1, first=360))
    with FlowRun(tmp_path, [again_there | {"metadata": {"name": f"{name}-2"}}]) as run:
        wait_until(lambda: count(spec(west), topic), within_s=60, until=lambda n: n >= 355)
        last = fail_over(run, "--quiet-seconds", "1")
        assert last["notCopied"] == 0
    copied = [value for _, value in positions(west, topic)]
    numbers = [record.value for record in numbered(365, 1)]
    assert copied == numbers[:300] + numbers[310:]


def test_with_prefixes_groups_come_back_to_the_record_that_they_had_reached(
    east: Cluster, west: Cluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """And the two flows run beside each other: neither copies what the other has copied."""
    name = unique("prefix")
    topic = make_topic(spec(east), name, 1)
    in_transactions(east, topic, [(20, True), (3, False), (10, True)])
    produce(spec(east), topic, numbered(50, 1))
    log = positions(east, topic)
    groups = {f"{name}-{n}": log[index][0] for n, index in enumerate((0, 15, 25, 60))}
    for group, at in groups.items():
        commit(east, group, topic, {0: at})
    there = flow(name, east, west, topic)
    del there["spec"]["policy"]
    copy = f"east.{topic}"
    with FlowRun(tmp_path, [there]) as run:
        wait_until(lambda: len(positions(west, copy)), within_s=60, until=lambda n: n == len(log))
        fail_over(run, "--quiet-seconds", "1")
        for group in list(groups)[:3]:
            read_on(west, group, copy, 12)
        read_on(west, f"{name}-3", copy, len(log))
        make_topic(spec(west), topic, 1)
        produce(spec(west), topic, numbered(30, 1, first=1000))
        produce(spec(east), topic, numbered(5, 1, first=50))  # never sent
        back, noted = reverse(name)
        assert f"5 offsets ({topic}/0 5) that were never sent" in noted
        assert len(re.findall("goes on at", noted)) == 4, noted
        reached = {
            n: index_of(positions(east, topic), at) for n, at in places(east, groups).items()
        }
        assert reached == {f"{name}-{n}": at for n, at in enumerate((12, 27, 37, len(log)))}
        assert reverse(name)[1] == noted, "a command that is typed again changes nothing"
        with FlowRun(tmp_path, [back]):
            fail_over(run, "--abort")
            wait_until(
                lambda: len(positions(west, copy)), within_s=60, until=lambda n: n == len(log) + 5
            )
            returned = f"west.{topic}"
            wait_until(lambda: arrived(spec(east), returned), within_s=60, until=lambda n: n == 30)
            wait_until(run.ready, within_s=30)
        made = {
            one
            for one in (*Admin(spec(east)).topics(), *Admin(spec(west)).topics())
            if topic in one
        }
        assert made == {topic, copy, returned}
