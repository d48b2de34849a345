"""A flow that sets groups, and headrace's reports on them."""

import json
import subprocess
import sys
from typing import Any

from support.flows import FlowRun, manifest
from support.patience import WITHIN_S

from headrace.errors import Retriable
from headrace.sandbox import SandboxCluster

INTERVAL_S = 2
"""Seconds between two checkpoints of a group."""


def applied(
    name: str, source: SandboxCluster, target: SandboxCluster, topic: str
) -> dict[str, Any]:
    """Return the manifest of a flow that sets the groups of one test as often as it can."""
    return manifest(
        name,
        source,
        target,
        topic,
        groups={"include": [f"{name}-.*"]},
        discovery={"groupsSeconds": 1},
        checkpoints={"intervalSeconds": INTERVAL_S, "applyToGroups": True},
        tasks={"max": 1},
    )


def printed(*arguments: str) -> dict[str, Any]:
    """Return the JSON output of a command of ``headrace``.

    Raises Retriable if the command fails: the run may still start.
    """
    command = [sys.executable, "-m", "headrace", *arguments, "-o", "json"]
    answer = subprocess.run(command, capture_output=True, check=False, timeout=WITHIN_S)
    if answer.returncode:
        raise Retriable(answer.stderr.decode())
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def said_of_groups(run: FlowRun) -> str:
    """Return the checkpoint task's message on its groups, or an empty one before the first read."""
    for unit in run.units("CheckpointTask"):
        for condition in run.describe(unit["name"]).get("status", {}).get("conditions", []):
            return str(condition["message"])
    return ""
