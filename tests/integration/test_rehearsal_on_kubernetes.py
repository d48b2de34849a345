"""The Job that rehearses a fail-over, with the chart's permissions, a flow in pods, real brokers.

The test sends the load, and reports what probe and producer would.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer
from cluster.kubelet import Kubelet
from support.flows import spec
from support.manifests import mirror_test
from support.operators import REHEARSAL_ROLE, Resources, give_rights, running_operator
from support.records import make_topic, numbered, produce, unique
from support.rehearsal import flow

from headrace.api import MirrorTest, Rehearsal, ReplicationFlow
from headrace.controller import FixedRole, Images
from headrace.controller.mirror_tests import TestRun, build_run
from headrace.controller.mirror_tests.jobs import build_job
from headrace.kafka import journal
from headrace.mirror_test import Rehearsed, Stage, documents, resolve
from headrace.sandbox import SandboxCluster

Wait = Callable[..., Any]
GROUPS, QUARTER = 3, 200
MESSAGES = 4 * QUARTER


class Rehearsing:
    """A run of a mirror test whose other stages are this test."""

    def __init__(self, resources: Resources, name: str, source: SandboxCluster, topic: str) -> None:
        self.resources, self.name, self._source, self._topic = resources, name, source, topic
        test = mirror_test(
            f"{name}-test",
            flowName=name,
            load={"names": [topic], "messages": MESSAGES},
            settleSeconds=20,
        )
        resources.apply(test)
        found = MirrorTest.model_validate(resources.get("mtest", f"{name}-test"))
        resolved = resolve(found, ReplicationFlow.model_validate(resources.flow(name)))
        self.run = TestRun(
            resolved,
            Images("headrace-spark:1", "headrace:1"),
            rehearsal=Rehearsal(groups=GROUPS),
            rehearsal_role=FixedRole("Role", REHEARSAL_ROLE),
        )
        journal.create(spec(source))
        resources.apply(*build_run(self.run), build_job(self.run, Stage.REHEARSAL))

    def job(self) -> Any:
        """Return the status of the Job."""
        return self.resources.get("job", self.run.part(Stage.REHEARSAL))["status"]

    def is_ready(self) -> bool:
        return bool(self.job().get("ready"))

    def ended(self) -> set[str]:
        """Return the outcome of the Job."""
        return {one["type"] for one in self.job().get("conditions", ())}

    def pods(self) -> list[str]:
        found = self.resources.get("pods", "-l", "headrace.dev/stage=rehearsal")["items"]
        return [pod["metadata"]["name"] for pod in found]

    def send(self) -> None:
        """Send the load, and the reports of its producer and the probe."""
        for sent in range(0, MESSAGES, QUARTER):
            produce(spec(self._source), self._topic, numbered(QUARTER, 2, first=sent))
            self._report(documents.progress_key("p-0"), {"acknowledged": sent + QUARTER})
        self._report(documents.MANIFEST_KEY, {})
        self._report(documents.MEASURED_KEY, {})

    def _report(self, key: str, value: Any) -> None:
        journal.write(spec(self._source), self.run.name, key, json.dumps(value))

    def outcome(self) -> Rehearsed:
        found = journal.read(spec(self._source), self.run.name, documents.REHEARSAL_KEY)
        return Rehearsed.model_validate(found)

    def state(self) -> str:
        """Return the flow's state in its spec."""
        return str(self.resources.flow(self.name)["spec"].get("state", "Running"))


@pytest.fixture
def rehearsing(
    *,
    api_server: ApiServer,
    namespace: str,
    kubelet: Kubelet,
    tmp_path: Path,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: Wait,
) -> Iterator[Rehearsing]:
    """Ready, with a flow that runs. The operator leaves mirror tests alone."""
    give_rights(api_server, namespace, rehearsal=True, mirror_tests=False)
    name = unique("podsreh")
    topic = make_topic(spec(east), name, 2)
    copies = flow(name, east, west, topic)
    copies["spec"] |= {
        "groups": {"include": ["headrace-rehearsal-.*"]},
        "heartbeats": {"enabled": False},
        "drivers": {"replicas": 1, "leaseSeconds": 60},
    }
    with running_operator(api_server, namespace, tmp_path, arguments=["--no-mirror-tests"]):
        resources = Resources(api_server, namespace)
        resources.apply(copies)
        flow_is_ready(resources, name, wait_until)
        found = Rehearsing(resources, name, east, topic)
        wait_until(found.is_ready)
        yield found


def flow_is_ready(resources: Resources, name: str, wait_until: Wait) -> None:
    wait_until(
        lambda: resources.condition(name, "Ready"),
        until=lambda ready: (ready.get("status"), ready.get("reason")) == ("True", "Running"),
    )


@pytest.mark.long
def test_the_job_rehearses_with_the_rights_of_the_chart_and_undoes_it(
    rehearsing: Rehearsing, wait_until: Wait
) -> None:
    assert rehearsing.outcome().error == (
        f"Job {rehearsing.run.part(Stage.REHEARSAL)} ended before it was done"
    )
    rehearsing.send()
    wait_until(rehearsing.ended, until=lambda ended: "Complete" in ended)
    found = rehearsing.outcome()
    assert (found.error, found.not_undone) == (None, None)
    assert [(one.reread, one.skipped) for one in found.groups] == [(0, 0)] * GROUPS
    assert found.groups[0].committed < found.groups[-1].committed == MESSAGES
    assert rehearsing.state() == "Running"
    flow_is_ready(rehearsing.resources, rehearsing.name, wait_until)


@pytest.mark.long
def test_after_a_pod_that_was_killed_the_next_one_only_undoes_what_it_left(
    rehearsing: Rehearsing, kubelet: Kubelet, wait_until: Wait
) -> None:
    (first,) = rehearsing.pods()
    rehearsing.send()
    wait_until(rehearsing.state, until=partial(eq, "Stopped"))
    kubelet.pod(first).kill()
    wait_until(rehearsing.ended, until=lambda ended: "Failed" in ended)
    assert len(rehearsing.pods()) == 2
    found = rehearsing.outcome()
    assert found.error == f"Job {rehearsing.run.part(Stage.REHEARSAL)} ended before it was done"
    assert found.not_undone is None
    assert rehearsing.state() == "Running"
    flow_is_ready(rehearsing.resources, rehearsing.name, wait_until)
