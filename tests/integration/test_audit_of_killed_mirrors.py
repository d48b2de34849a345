"""An audit of three mirrors that are killed while each copies a topic of an application."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from support.flows import FlowRun, spec
from support.flows import manifest as flow_manifest
from support.patience import WITHIN_S
from support.records import Load, Record, compare, count, make_topic, read, unique
from support.scenes import WaitUntil
from support.verifying import result_in, verify_command

from headrace.host import spawn
from headrace.sandbox import Sandbox, SandboxCluster, start_mirror_maker

PARTITIONS, PER_SECOND, KILLS = 3, 200, 3
HEADRACE, MIRROR_MAKER, SMALL = "headrace", "mirror-maker", "small"
Logs = dict[int, list[Record]]


@pytest.mark.long
def test_an_audit_judges_mirrors_that_were_killed(
    clusters: Sandbox,
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    """Kill all mirrors with SIGKILL. Only headrace neither loses nor repeats records."""
    prefix = unique("killed")
    topics = {mirror: f"{prefix}.{mirror}" for mirror in (HEADRACE, MIRROR_MAKER, SMALL)}
    for topic in topics.values():
        make_topic(spec(east), topic, PARTITIONS)
    make_topic(spec(west), topics[SMALL], PARTITIONS)
    small = partial(small_mirror, east, west, topics[SMALL])
    mirror_maker_2 = partial(mirror_maker, clusters, topics[MIRROR_MAKER])

    def copies(mirror: str) -> None:
        """Wait until a mirror, which may just have started, has copied records for a second."""
        known = count(spec(west), topics[mirror])
        wait_until(
            lambda: count(spec(west), topics[mirror]), until=lambda end: end > known + PER_SECOND
        )

    flow = flow_manifest(
        prefix,
        *(east, west, topics[HEADRACE]),
        replicationPolicy={"type": "Identity"},
        heartbeats={"enabled": False},
    )
    with FlowRun(tmp_path, [flow]) as run, ExitStack() as mirrors, ExitStack() as loads:
        for topic in topics.values():
            loads.enter_context(Load(spec(east), topic, PARTITIONS, PER_SECOND))
        with mirror_maker_2():
            copies(MIRROR_MAKER)
        mirrors.enter_context(mirror_maker_2())
        for _ in range(KILLS):
            with small():
                copies(SMALL)
            copies(HEADRACE)
            for driver in wait_until(run.drivers):
                driver.kill()
                driver.wait(WITHIN_S)
        mirrors.enter_context(small())
        loads.close()
        expected = {
            mirror: compare(*wait_until(partial(both_sides, east, west, topic), until=end_equally))
            for mirror, topic in topics.items()
        }

    test = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": "killed"},
        "spec": {
            "source": {"alias": east.name, "bootstrapServers": east.bootstrap_servers},
            "target": {"alias": west.name, "bootstrapServers": west.bootstrap_servers},
            "targetTopic": "{topic}",
            "settleSeconds": 1,
            "budgets": {"duplicated": 0},
            "audit": {"topics": list(topics.values())},
        },
    }
    file = tmp_path / "audit.yaml"
    file.write_text(yaml.safe_dump(test))
    command = verify_command(file, tmp_path / "report")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    result = result_in(tmp_path / "report")
    assert result.audit is not None
    rows = {topic.source.rpartition(".")[2]: topic for topic in result.audit.topics}
    for mirror, row in rows.items():
        print(
            f"{mirror}: {row.source_records} records, {row.missing} missing, "
            f"{row.duplicated} duplicated"
        )
        assert (row.missing, row.duplicated) == expected[mirror][:2]
        assert (row.corrupted, row.alien, row.excluded) == (0, 0, 0)
        assert (row.reordered == 0) == expected[mirror].in_order
    assert expected[HEADRACE] == (0, 0, True)
    assert expected[MIRROR_MAKER].missing == 0
    assert expected[MIRROR_MAKER].repeated > 0
    assert expected[SMALL].missing + expected[SMALL].repeated > 0


@contextmanager
def mirror_maker(sandbox: Sandbox, topic: str) -> Iterator[None]:
    """Run MirrorMaker 2, and kill it at the end of the block."""
    source = replace(sandbox.cluster("east"), name=topic.partition(".")[0])
    target = sandbox.cluster("west")
    flow = f"{source.name}->{target.name}"
    settings = {
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        f"{flow}.emit.heartbeats.enabled": "false",
        f"{flow}.emit.checkpoints.enabled": "false",
    }
    process, _ = start_mirror_maker(sandbox, source, target, topic, settings)
    try:
        yield
    finally:
        process.kill()
        process.wait(WITHIN_S)


@contextmanager
def small_mirror(source: SandboxCluster, target: SandboxCluster, topic: str) -> Iterator[None]:
    """Run the small mirror, and kill it at the end of the block."""
    servers = (source.bootstrap_servers, target.bootstrap_servers)
    command = [sys.executable, "-m", "support.small_mirror", *servers, topic, str(PARTITIONS)]
    process = spawn(command, cwd=Path(__file__).parents[1])
    try:
        yield
    finally:
        process.kill()
        process.wait(WITHIN_S)


def both_sides(source: SandboxCluster, target: SandboxCluster, topic: str) -> tuple[Logs, Logs]:
    return read(spec(source), topic), read(spec(target), topic)


def end_equally(logs: tuple[Logs, Logs]) -> bool:
    """Return whether the last record of each source partition is the last one of its copy."""
    source, target = logs
    return {at: log[-1] for at, log in source.items()} == {
        at: log[-1] for at, log in target.items()
    }
