"""Target offsets equal source offsets, or the flow reports which do not, whatever happens.

Faults hit its drivers and the target. To run more than in CI, set ``HEADRACE_TORTURE_ROUNDS=100``
and ``HEADRACE_TORTURE_SEED``.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.preserved_topics import CLEANER, COMPACTED, KEPT
from support.preserved_torture import Torture, rounds
from support.records import make_topic, unique
from support.torture_scene import UNCLEAN, Scene, make_copy

from headrace.sandbox import ClusterPlan, Sandbox

ROUNDS = int(os.environ.get("HEADRACE_TORTURE_ROUNDS", "5"))
SEED = int(os.environ.get("HEADRACE_TORTURE_SEED", "1"))
WITH_TOMBSTONES = {**COMPACTED, "delete.retention.ms": "86400000"}
"""Settings that keep the last record of each key, which explains why earlier ones were removed."""


@pytest.mark.long
@pytest.mark.timeout(300 + 120 * ROUNDS)
def test_after_each_fault_every_offset_is_equal_or_reported(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    plans = [ClusterPlan("east", properties=CLEANER), ClusterPlan("west", brokers=3)]
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox.start("torture", plans, home=tmp_path / "sandboxes"))
        east, west = sandbox.cluster("east"), sandbox.cluster("west")
        mixed = make_topic(spec(east), unique("mixed"), 1, **KEPT)
        compacted = make_topic(spec(east), unique("compacted"), 1, **WITH_TOMBSTONES)
        unclean = make_topic(spec(east), unique("unclean"), 1, **KEPT)
        make_copy(west, f"east.{mixed}", [2, 3, 1])
        make_copy(west, f"east.{compacted}", [3, 1, 2])
        make_copy(west, f"east.{unclean}", [1, 2], **UNCLEAN)
        topics = [mixed, compacted, unclean]
        flow = manifest(
            unique("torture"), east, west, *topics,
            offsets={"mode": "Preserved"}, drivers={"leaseSeconds": 3}, tasks={"max": 1},
        )  # fmt: skip
        run = stack.enter_context(FlowRun(tmp_path, [flow], drivers=2))
        scene = Scene(run, east, west, topics, unclean=unclean, wait_until=wait_until)
        torture = Torture(scene)
        for number, (owner, broker) in enumerate(rounds(ROUNDS, SEED)):
            began = time.monotonic()
            seen = torture.round(owner, broker, f"{SEED} {number}")
            took_s = time.monotonic() - began
            print(f"{number}: driver {owner or '-'}, {broker}: {seen}, {took_s:.0f} s")
