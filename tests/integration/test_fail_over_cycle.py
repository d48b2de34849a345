"""Planned fail-overs there, back and there again, under load, with 20 groups that read."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, spec
from support.groups import commit, in_transactions, positions
from support.records import Load, arrived, count, make_topic, numbered, produce, unique
from support.rehearsal import (
    Log,
    delivered_again_and_never,
    due_after,
    fail_over,
    flow,
    headrace,
    index_of,
    places,
    read_to,
    reverse,
)

from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
BEHIND = 100_000
UNSENT = 10
RATE = 300


@pytest.mark.long
def test_there_and_back_and_there_again_nothing_is_missing_and_nothing_doubled(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Fail over three times; each time, every group resumes at exactly its next record.

    Before the first fail-over the groups stop at the head, at the end, in mid-batch, inside each
    hole, 100,000 records behind, or after they read under load. Before the others, all of them read
    under load.
    """
    name = unique("cycle")
    topic = make_topic(spec(east), name, 1)
    groups = [f"{name}-{number}" for number in range(20)]
    produce(spec(east), topic, numbered(BEHIND, 1))
    in_transactions(east, topic, [(40, True), (3, False), (1, True), (60, True), (2, False)])
    due = dict.fromkeys(groups[:6], BEHIND - 20)
    for group, at in due.items():
        commit(east, group, topic, {0: at})
    manifest, sent = flow(name, east, west, topic), 0
    for turn, (here, there) in enumerate([(east, west), (west, east), (east, west)], start=1):
        had = values(positions(there, topic)) if turn > 1 else []
        with FlowRun(tmp_path, [manifest]) as run:
            with Load(spec(here), topic, 1, RATE, first=turn * BEHIND):
                copied, seen = count(spec(there), topic) + RATE, partial(count, spec(there), topic)
                wait_until(seen, until=copied.__lt__)
                last = {one: value(turn * BEHIND + 100 + 7 * n) for n, one in enumerate(due)}
                delivered = read_to(here, topic, last)
            log = positions(here, topic)
            assert delivered_again_and_never(log, due, last, delivered) == (0, 0)
            if turn == 1:
                code, printed = headrace("flow", "reverse", name)
                assert (code, "is not failed over" in printed) == (3, True)
                commit_everywhere(here, groups[6:], topic, log)
            left = places(here, groups)

            found = fail_over(run, "--quiet-seconds", "1")
            assert (found["notCopied"], found["problems"]) == (0, [])
            assert len(found["groups"]) == 20
            assert [one for one in found["groups"] if one["note"] or not one["exact"]] == []
            copies = positions(there, topic)
            assert values(copies) == had + values(log)[sent:]
            due = due_after(log, copies, left)
            goes_on = places(there, groups)
            assert {one: index_of(copies, at) for one, at in goes_on.items()} == due

            sent = len(copies)
            produce(spec(here), topic, numbered(UNSENT, 1, first=(turn + 10) * BEHIND))
            manifest, said = reverse(run.name)
            assert f"{UNSENT} offsets ({topic}/0 {UNSENT}) that were never sent" in said
            manifest["metadata"]["name"] = f"{name}-{turn}"  # a name that was stopped stays so
    end = dict.fromkeys(groups, copies[-1][1] or b"")
    behind = {group: at for group, at in due.items() if at < len(copies)}
    delivered = read_to(west, topic, {group: end[group] for group in behind})
    assert delivered_again_and_never(copies, behind, end, delivered) == (0, 0)


def test_a_flow_that_is_started_again_beside_its_flow_back_copies_nothing(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Start the flow as a GitOps tool does: no record goes round, though no manifest names both."""
    name = unique("beside")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(50, 1))
    there = flow(name, east, west, topic)
    with FlowRun(tmp_path, [there]) as run:
        wait_until(lambda: arrived(spec(west), topic), until=partial(eq, 50))
        fail_over(run, "--quiet-seconds", "1")
        back, _ = reverse(name)
        both = tmp_path / "both.yaml"
        FlowRun.write(both, [there, back])
        code, printed = headrace("validate", str(both))
        assert (code, f"records of {topic} would go round" in printed) == (3, True), printed
        with FlowRun(tmp_path, [back]):
            produce(spec(west), topic, numbered(30, 1, first=BEHIND))
            wait_until(lambda: arrived(spec(east), topic), until=partial(eq, 80))
            assert headrace("flow", "resume", name)[0] == 0
            wait_until(lambda: "was failed over" in str(run.status()))
        there_and_here = [values(positions(one, topic)) for one in (west, east)]
        assert there_and_here[0] == there_and_here[1]
        assert len(there_and_here[0]) == 80


def commit_everywhere(cluster: SandboxCluster, groups: Sequence[str], topic: str, log: Log) -> None:
    """Commit at the head, ``BEHIND`` records back, at the end, in mid-batch, in each hole."""
    offsets = [offset for offset, _ in log]
    holes = [hole for a, b in pairwise(offsets) for hole in range(a + 1, b)]
    stops = [0, offsets[-BEHIND], offsets[-1] + 1, BEHIND + 7, *holes]
    for group, at in zip(groups, stops, strict=True):
        commit(cluster, group, topic, {0: at})


def value(number: int) -> bytes:
    """Return the value of a record of ``numbered``."""
    return b"value-%d" % number


def values(log: Log) -> list[bytes | None]:
    return [one for _, one in log]
