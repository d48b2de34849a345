"""Topics that have other names on the target; real brokers."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.groups import commit, committed
from support.policy_plug_in import install
from support.records import make_topic, numbered, produce, read, unique

from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


def test_topics_are_copied_under_the_names_of_the_map(
    *, east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("renamed")
    topics = [make_topic(spec(east), f"{name}-{end}", 2) for end in ("a", "b", "kept")]
    for topic in topics:
        produce(spec(east), topic, numbered(100, 2))
    commit(east, f"{name}-billing", topics[0], {0: 20, 1: 30})
    a, b, kept = topics
    copies = {a: b, b: f"{name}.new", kept: kept}
    flow = manifest(
        name,
        east,
        west,
        *topics,
        replicationPolicy={"type": "RenameMap", "renames": {a: copies[a], b: copies[b]}},
        groups={"include": [f"{name}-.*"]},
        discovery={"groupsSeconds": 1},
        checkpoints={"intervalSeconds": 2, "applyToGroups": True},
    )

    def copied(topic: str) -> bool:
        found, wanted = read(spec(west), copies[topic]), read(spec(east), topic)
        return {n: [one.value for one in found.get(n, [])] for n in wanted} == {
            n: [one.value for one in records] for n, records in wanted.items()
        }

    with FlowRun(tmp_path, [flow]) as run:
        for topic in topics:
            wait_until(lambda topic=topic: copied(topic))
        wait_until(lambda: committed(west, f"{name}-billing") == {0: (20, ""), 1: (30, "")})
        wait_until(run.ready)
    assert not read(spec(west), a), "no topic of the source's old name"


def test_a_plug_in_names_topics(
    *,
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    name = unique("plugged")
    topic = make_topic(spec(east), name, 1)
    produce(spec(east), topic, numbered(100, 1))
    with FlowRun(
        tmp_path, [manifest(name, east, west, topic, replicationPolicy={"type": "suffix"})]
    ) as run:
        wait_until(lambda: len(read(spec(west), f"{topic}.east").get(0, [])) == 100)
        wait_until(run.ready)
    with FlowRun(
        tmp_path, [manifest(name, east, west, topic, replicationPolicy={"type": "raises"})]
    ) as run:
        wait_until(lambda: errors(run), until=lambda found: SAID in found)


SAID = "policy raises: target_topic("


def errors(run: FlowRun) -> str:
    """Return the errors of the source connector."""
    units = run.units("SourceConnector")
    return "; ".join(unit.get("lastError", {}).get("message", "") for unit in units)
