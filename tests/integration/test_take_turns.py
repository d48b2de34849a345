"""A flow and a real MirrorMaker 2 in dedicated mode take turns under load."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.groups import commit
from support.mirror_client import mirror_client
from support.patience import WITHIN_S
from support.records import Load, arrived, compare, make_topic, read, unique
from support.rehearsal import headrace, report_of

from headrace.sandbox import ClusterPlan, Sandbox, start_mirror_maker

WaitUntil = Callable[..., Any]
_SETTINGS = {
    "refresh.groups.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    # For Connect it is the target's prefix that counts.
    "west.offset.flush.interval.ms": "3000",
    "west.session.timeout.ms": "6000",
    "west.heartbeat.interval.ms": "2000",
}


@contextmanager
def mirror_maker(sandbox: Sandbox, topic: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield MirrorMaker 2's process, and kill it at the end unless it was stopped."""
    east, west = sandbox.clusters
    process, _ = start_mirror_maker(sandbox, east, west, topic, _SETTINGS)
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def mm2(verb: str, *words: str) -> dict[str, Any]:
    """Run ``headrace flow import mm2`` or ``export mm2``, and return its report."""
    return report_of("flow", verb, "mm2", *words, "--quiet-seconds", "1")


def goes_on(found: dict[str, Any], topic: str) -> dict[int, int]:
    """Return the resume offset of each partition of the topic, ignoring heartbeats."""
    here = [one for one in found["partitions"] if one["topic"] == topic]
    return {one["partition"]: one["goesOnAt"] for one in here}


def not_lower(now: Mapping[Any, tuple[int, str]], before: Mapping[Any, tuple[int, str]]) -> bool:
    """Return whether no offset of ``RemoteClusterUtils`` decreased."""
    return all(now[at][0] >= offset for at, (offset, _) in before.items())


@pytest.mark.long
def test_each_goes_on_where_the_other_stopped(tmp_path: Path, wait_until: WaitUntil) -> None:
    """Copy in turns: only records that a killed MirrorMaker 2 had not stored are doubled."""
    plans = [ClusterPlan("east"), ClusterPlan("west")]
    with Sandbox.start("turns", plans, home=tmp_path / "sandboxes") as sandbox:
        east, west = sandbox.clusters
        name = unique("turns")
        topic, copy, group = make_topic(spec(east), name, 2), f"east.{name}", f"{name}-billing"
        flow = manifest(
            name,
            east,
            west,
            name,
            groups={"include": [f"{name}-.*"]},
            discovery={"groupsSeconds": 1},
            checkpoints={"intervalSeconds": 2},
        )
        more = 0

        def copied_more() -> bool:
            return arrived(spec(west), copy) > more

        with mirror_client(west) as java:

            def answers() -> dict[tuple[str, int], tuple[int, str]]:
                return java.translate_offsets("east", group)

            with Load(spec(east), topic, 2, 100):
                with mirror_maker(sandbox, topic) as mirror:
                    more = 250
                    wait_until(copied_more)
                    commit(east, group, topic, {0: 100, 1: 110})
                    wait_until(lambda: len(answers()) == 2)
                    said = answers()
                    file = tmp_path / f"{name}.yaml"
                    FlowRun.write(file, [flow])
                    code, printed = headrace("flow", "import", "mm2", "-f", str(file))
                    assert (code, "group east-mm2 on" in printed) == (1, True), printed
                    mirror.send_signal(signal.SIGTERM)
                    mirror.wait(WITHIN_S)
                before = {n: len(found) for n, found in read(spec(west), copy).items()}
                dry = goes_on(mm2("import", "-f", str(file), "--dry-run"), topic)
                assert dry == before, "it has stored at its end all that it has copied"
                assert goes_on(mm2("import", "-f", str(file)), topic) == dry

                with FlowRun(tmp_path, [flow]) as run:
                    more = sum(before.values()) + 100
                    wait_until(copied_more)
                    assert not_lower(answers(), said)
                    commit(east, group, topic, {0: before[0] + 20, 1: 120})
                    wait_until(lambda: answers()[copy, 0][0] > said[copy, 0][0])
                    assert not_lower(answers(), said)
                    said = answers()
                    code, printed = headrace("flow", "export", "mm2", name)
                    assert (code, "is not stopped" in printed) == (3, True), printed
                    assert headrace("flow", "pause", "--stop", name)[0] == 0
                    wait_until(lambda: not any(u["driverName"] for u in run.units()))
                    mm2("export", name)
                done = compare(read(spec(east), topic), read(spec(west), copy))
                assert (done.repeated, done.in_order) == (0, True)

                more = arrived(spec(west), copy) + 100
                with mirror_maker(sandbox, topic):
                    wait_until(copied_more)
                assert not_lower(answers(), said)
                before = {n: len(found) for n, found in read(spec(west), copy).items()}
                # Brokers first have to notice that the killed worker has left its group.
                code, printed = wait_until(
                    lambda: headrace("flow", "import", "mm2", "-f", str(file)),
                    until=lambda said: "has members" not in said[1],
                )
                assert (code, "--again" in printed) == (3, True), printed
                done_again = mm2("import", "-f", str(file), "--again")
                again = goes_on(done_again, topic)
            doubled = sum(before[n] - again[n] for n in again)
            here = [one for one in done_again["partitions"] if one["topic"] == topic]
            assert sum(one["alreadyOnTarget"] for one in here) == doubled
            with FlowRun(tmp_path, [flow]) as run:
                wait_until(run.status)
                assert headrace("flow", "resume", name)[0] == 0, "it was stopped by the command"
                more = arrived(spec(east), topic) + doubled - 1
                wait_until(copied_more)
                done = compare(read(spec(east), topic), read(spec(west), copy))
                assert (done.missing, done.repeated) == (0, doubled)
                assert not_lower(answers(), said)
