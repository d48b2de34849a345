"""Fail-overs as users carry them out, and an account of the records delivered to each group."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import yaml
from support.flows import FlowRun, manifest
from support.groups import committed, member
from support.patience import WITHIN_S

from headrace.sandbox import SandboxCluster

Log = Sequence[tuple[int, bytes | None]]
"""Offset and value of each committed record of a partition: ``groups.positions``."""

_QUIET_S = 120.0
_MOST = 2_000
_WAIT_S = 0.01


def flow(
    name: str, source: SandboxCluster, target: SandboxCluster, topic: str, **more: Any
) -> dict[str, Any]:
    """Return the manifest of a flow that keeps topic names and follows the groups of one test."""
    return manifest(
        name,
        source,
        target,
        topic,
        replicationPolicy={"type": "Identity"},
        groups={"include": [f"{name}-.*"]},
        discovery={"groupsSeconds": 1},
        checkpoints={"intervalSeconds": 2},
        **more,
    )


def _ended(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headrace", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def headrace(*words: str) -> tuple[int, str]:
    """Run a command, and return its exit code and its output."""
    done = _ended(*words)
    return done.returncode, done.stdout + done.stderr


def report_of(*words: str) -> dict[str, Any]:
    """Run a command that must succeed, and return its report in JSON, without its messages."""
    done = _ended(*words, "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def fail_over(run: FlowRun, *options: str) -> dict[str, Any]:
    """Fail a running flow over, and return the command's report."""
    return report_of("failover", run.name, *options)


def checkpointed(run: FlowRun) -> int:
    """Return the number of groups with an exact checkpoint for their committed offsets."""
    done = _ended("flow", "groups", run.name, "-o", "json")
    found = json.loads(done.stdout)["groups"] if done.returncode == 0 else []
    return sum(one["lag"] == 0 and not one["note"] for one in found)


def reverse(*flow: str) -> tuple[dict[str, Any], str]:
    """Return the manifest of the reverse flow, and the messages of the command.

    ``flow`` is its name, or ``-f`` and the file of its manifest.
    """
    done = _ended("flow", "reverse", *flow)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout), done.stderr


def places(cluster: SandboxCluster, groups: Iterable[str]) -> dict[str, int]:
    """Return the committed offset of each group."""
    return {group: committed(cluster, group)[0][0] for group in groups}


def index_of(log: Log, at: int) -> int:
    """Return the index of the first record at or after an offset."""
    return sum(offset < at for offset, _ in log)


def reread_and_skipped(
    source: Log, target: Log, left: Mapping[str, int], goes_on: Mapping[str, int]
) -> tuple[int, int]:
    """Return the numbers of records delivered again and never, over all groups.

    Only records on the target count.
    """
    assert [value for _, value in target] == [value for _, value in source[: len(target)]]
    reread = skipped = 0
    for group, at in left.items():
        due = min(len(target), index_of(source, at))
        begins = index_of(target, goes_on[group])
        reread += max(0, due - begins)
        skipped += max(0, begins - due)
    return reread, skipped


def read_to(
    cluster: SandboxCluster, topic: str, last: Mapping[str, bytes]
) -> dict[str, list[bytes]]:
    """Read with consumers of all groups side by side, and return the values of each group.

    Each consumer reads until its ``last`` value, and commits that. It stops early if no record
    arrives for two minutes.
    """
    delivered: dict[str, list[bytes]] = {group: [] for group in last}
    with ExitStack() as open_ones:
        consumers = {
            group: open_ones.enter_context(closing(member(cluster, group))) for group in last
        }
        for consumer in consumers.values():
            consumer.subscribe([topic])
        quiet_s = time.monotonic() + _QUIET_S
        while consumers and time.monotonic() < quiet_s:
            for group, consumer in list(consumers.items()):
                for message in consumer.consume(_MOST, _WAIT_S):
                    assert message.error() is None, message.error()
                    delivered[group].append(message.value() or b"")
                    quiet_s = time.monotonic() + _QUIET_S
                    if message.value() == last[group]:
                        consumer.commit(message=message, asynchronous=False)
                        del consumers[group]
                        break
    return delivered


def delivered_again_and_never(
    log: Log,
    after: Mapping[str, int],
    last: Mapping[str, bytes],
    delivered: Mapping[str, Sequence[bytes]],
) -> tuple[int, int]:
    """Return the numbers of records delivered out of turn and never, over all groups.

    The records due to a group are those from index ``after`` of the log to its ``last`` value.
    """
    values = [value for _, value in log]
    again = never = 0
    for group, found in delivered.items():
        due = set(values[after[group] : values.index(last[group]) + 1])
        times = Counter(found)
        again += sum(times.values()) - len(due & times.keys())
        never += len(due - times.keys())
    return again, never


def due_after(source: Log, target: Log, left: Mapping[str, int]) -> dict[str, int]:
    """Return the index at the target of each group's next record.

    ``left`` has the source offset at which each group stopped. The index of a group that has read
    all records is the end of the target's log.
    """
    indices = {value: index for index, (_, value) in enumerate(target)}
    values = [value for _, value in source]
    found = {group: index_of(source, at) for group, at in left.items()}
    return {
        group: indices[values[index]] if index < len(values) else len(target)
        for group, index in found.items()
    }
