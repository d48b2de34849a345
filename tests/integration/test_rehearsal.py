"""A fail-over that a mirror test rehearses, with real consumers, on a flow that copies a load."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from support.flows import FlowRun, manifest, spec
from support.manifests import mirror_test
from support.records import Load, count, make_topic, unique
from support.rehearsal import flow
from support.verifying import verified

from headrace.api import MirrorTest
from headrace.api.labels import FLOW_LABEL
from headrace.cli.mirror_test.rehearsal import FailOver
from headrace.kafka import Admin
from headrace.mirror_test import MirrorTestRun, Rehearsed
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
GROUPS = [f"headrace-rehearsal-{unique('g')}-{number}" for number in range(5)]


def of_flow(name: str, source: SandboxCluster, target: SandboxCluster, topic: str) -> MirrorTestRun:
    """Return the run of a mirror test as ``headrace verify`` resolves it."""
    document = {
        "metadata": {"name": name, "annotations": {FLOW_LABEL: name}},
        "spec": {
            "source": {"alias": source.name, "bootstrapServers": source.bootstrap_servers},
            "target": {"alias": target.name, "bootstrapServers": target.bootstrap_servers},
            "targetTopic": "{topic}",
            "load": {"names": [topic]},
        },
    }
    return MirrorTestRun(name=unique("r")[:20], test=MirrorTest.model_validate(document))


def have_joined(cluster: SandboxCluster, groups: Sequence[str]) -> bool:
    """Return whether each group except the first, which stops at once, has a member that reads."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = client.describe_consumer_groups(list(groups[1:])).values()
    return all(one.result(60).state is ConsumerGroupState.STABLE for one in found)


def has_stopped_after(cluster: SandboxCluster, number: int) -> bool:
    """Return whether a group has committed more than the group before it."""
    found, refused = Admin(spec(cluster)).committed(GROUPS[number - 1 : number + 1])
    if refused:
        return False
    before, now = (
        sum(one.offset for one in found.get(group, {}).values())
        for group in GROUPS[number - 1 : number + 1]
    )
    return now > before


def test_groups_go_on_at_the_target_and_what_they_read_is_counted(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("rehearsed")
    topic = make_topic(spec(east), name, 2)
    copies = flow(name, east, west, topic)
    copies["spec"]["groups"] = {"include": ["headrace-rehearsal-.*"]}
    with FlowRun(tmp_path, [copies]) as run:
        wait_until(run.ready)
        fail_over = FailOver(of_flow(name, east, west, topic), GROUPS)
        fail_over.start()
        with Load(spec(east), topic, 2, 500, stamped_now=True):
            wait_until(lambda: have_joined(east, GROUPS))
            for number, percent in enumerate((0, 25, 50, 75)):
                fail_over.progress(percent)
                if number:
                    wait_until(lambda number=number: has_stopped_after(east, number))
                seen = count(spec(west), topic)
                wait_until(lambda: count(spec(west), topic), until=(seen + 300).__lt__)
        found = fail_over.fail_over()
        assert found.error is None
        assert [(one.reread, one.skipped) for one in found.groups] == [(0, 0)] * 5
        read = [one.committed for one in found.groups]
        assert read[0] == 0
        assert read == sorted(set(read)), "each stops later than the one before"
        assert fail_over.end() is None
        wait_until(run.ready)  # it copies on


@pytest.mark.long
def test_a_fail_over_that_is_refused_is_no_rehearsal(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("unfollowed")
    topic = make_topic(spec(east), name, 1)
    with FlowRun(tmp_path, [flow(name, east, west, topic)]) as run:  # its groups are others
        wait_until(run.ready)
        fail_over = FailOver(of_flow(name, east, west, topic), GROUPS[:1])
        fail_over.start()
        found = fail_over.fail_over()
        assert "its spec.groups has to match it" in (found.error or "")
        assert fail_over.end() is None
        wait_until(run.ready)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_mirror_test_rehearses_a_fail_over(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The whole of ``headrace verify``."""
    name = unique("rehearsal")
    test = mirror_test(
        name,
        flowName=name,
        load={"topics": 2, "partitions": 3, "messages": 20_000, "messagesPerSecond": 1_000},
        rehearsal={"groups": 20},
        settleSeconds=60,
    )
    groups = {"include": ["headrace-rehearsal-.*"]}  # not the share groups of other tests
    with FlowRun(tmp_path, [manifest(name, east, west, f"{name}-.*", groups=groups)]) as run:
        wait_until(run.ready)
        judged = verified(tmp_path, test)
        wait_until(run.ready)
    said = "20 groups resumed at the target, 0 messages delivered again, 0 skipped"
    assert said in judged.printed
    found, report = judged.result.rehearsal, judged.report
    assert found is not None
    assert found == Rehearsed.model_validate_json((report / "rehearsal.json").read_text())
    assert len(found.groups) == 20
    assert 0 < found.groups[10].committed < found.groups[19].committed
    assert "Fail-over, rehearsed" in (report / "report.html").read_text()
