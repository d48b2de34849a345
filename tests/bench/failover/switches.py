"""Planned fail-overs of one sandbox, one after another: what each took, and what groups read."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count as numbers
from pathlib import Path

from support.flows import FlowRun, spec
from support.groups import commit, positions
from support.records import Load, count, make_topic, unique
from support.rehearsal import (
    delivered_again_and_never,
    due_after,
    fail_over,
    flow,
    places,
    read_to,
    reverse,
)

from headrace.api import ClusterAccess
from headrace.errors import GaveUp
from headrace.sandbox import Sandbox

RATE = 300
_EACH = 1_000_000
"""Numbers of a turn's records: more than any turn sends."""
_WITHIN_S = 300.0
"""Longest wait: on a busy machine, drivers alone may take a minute to start."""
_POLL_S = 0.1


@dataclass(frozen=True)
class Switched:
    """A fail-over, with its groups together."""

    seconds: float
    """Seconds of the command, including its start and the second of --quiet-seconds."""
    reread: int
    """Records that consumers at the new cluster were delivered a second time."""
    skipped: int
    """Records that they were not delivered at all."""
    inexact: int
    """Groups whose offset the command did not call exact."""


def switches(sandbox: Sandbox, groups: int) -> Iterator[Switched]:
    """Fail over there and back, without end.

    Between two fail-overs a load is sent, the flow copies it, and all groups read on: each stops in
    the middle of it, at a record of its own. Raises ``GaveUp`` for a flow that copies nothing.
    """
    here, there = sandbox.clusters
    topic = make_topic(spec(here), name := unique("failover"), 1)
    due = {f"{name}-{number}": 0 for number in range(groups)}
    for group in due:
        commit(here, group, topic, {0: 0})
    manifest, made = flow(name, here, there, topic), None
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        for turn in numbers(1):
            with FlowRun(Path(folder), [manifest]) as run:
                with Load(spec(here), topic, 1, RATE, stamped_now=True, first=turn * _EACH):
                    end = count(spec(there), topic) + RATE
                    _wait_until(partial(_holds, spec(there), topic, end), run)
                    stops = {
                        group: b"value-%d" % (turn * _EACH + 100 + 7 * number)
                        for number, group in enumerate(due)
                    }
                    delivered = read_to(here, topic, stops)
                log = positions(here, topic)
                reread, skipped = delivered_again_and_never(log, due, stops, delivered)
                if made:
                    yield Switched(made[0], reread, skipped, made[1])
                left = places(here, due)
                began_s = time.monotonic()
                found = fail_over(run, "--quiet-seconds", "1")
                inexact = groups - sum(one["exact"] for one in found["groups"])
                made = time.monotonic() - began_s, inexact
                due = due_after(log, positions(there, topic), left)
                manifest, _ = reverse(run.name)
                manifest["metadata"]["name"] = f"{name}-{turn}"
            here, there = there, here


def _holds(cluster: ClusterAccess, topic: str, more_than: int) -> bool:
    return count(cluster, topic) > more_than


def _wait_until(done: Callable[[], bool], run: FlowRun) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not done():
        if time.monotonic() > deadline:
            units = [(one.get("phase"), one.get("lastError")) for one in run.units()]
            raise GaveUp(
                f"flow {run.name} copied nothing for {_WITHIN_S:.0f} s: {units}; its log ends:\n"
                f"{run.output[-4000:]}"
            )
        time.sleep(_POLL_S)
