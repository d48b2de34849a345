"""The commands of docs/migrate-v1beta1.md, on a real API server and on real brokers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import OwnApiServer
from cluster.kubectl import KubectlError
from support.flows import FlowRun, manifest, spec
from support.manifests import EAST, WEST, Document
from support.progress import progress_records
from support.records import Record, compare, make_topic, numbered, produce, read, unique

from headrace.api import JOURNAL, earlier_name, progress_topic
from headrace.cli.main import main
from headrace.kafka import Admin, journal
from headrace.replication import Progress
from headrace.sandbox import SandboxCluster

CRDS = Path(__file__).parents[2] / "crds"
NAMES = tuple(
    f"{plural}.headrace.dev" for plural in ("replicationflows", "replicationtasks", "mirrortests")
)
OLD_FLOW: Document = {
    "apiVersion": "headrace.dev/v1alpha1",
    "kind": "ReplicationFlow",
    "metadata": {"name": "orders", "labels": {"team": "shop"}},
    "spec": {
        "source": EAST,
        "target": WEST,
        "topics": {"include": ["orders"]},
        "policy": {"type": "Identity"},
        "startFrom": "Latest",
        "onRecordError": "DeadLetter",
        "deadLetterTopic": "dead",
    },
}

EARLIER = (("first", b'"old"'), ("second", b"1"))


@pytest.fixture
def old_api_server(own_api_server: OwnApiServer) -> Iterator[OwnApiServer]:
    """Start an API server that stores v1alpha1, and accepts all fields of an object."""
    own_api_server.kubectl("delete", "crd", *NAMES)
    for file in CRDS.glob("*.yaml"):
        definition = yaml.safe_load(file.read_text())
        (version,) = definition["spec"]["versions"]
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        definition["spec"]["versions"] = [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": version["subresources"],
                "schema": {"openAPIV3Schema": free},
            }
        ]
        own_api_server.kubectl("apply", "-f", "-", input=definition)
    own_api_server.wait_until_established("crd", *NAMES)
    yield own_api_server
    own_api_server.kubectl("apply", "-f", str(CRDS))


def test_objects_of_v1alpha1_are_refused_until_they_are_converted(
    old_api_server: OwnApiServer,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wait_until: Callable[..., Any],
) -> None:
    kubectl = old_api_server.kubectl
    wait_until(
        lambda: _applied(lambda: kubectl("-n", namespace, "apply", "-f", "-", input=OLD_FLOW))
    )
    with pytest.raises(KubectlError, match="v1alpha1"):
        kubectl("apply", "-f", str(CRDS / "headrace.dev_replicationflows.yaml"))
    old, new = tmp_path / "v1alpha1.yaml", tmp_path / "v1beta1.yaml"
    stored_ones = ("get", "rflow,mtest", "--all-namespaces", "-o", "yaml")
    old.write_text(wait_until(lambda: kubectl(*stored_ones)))  # a kind is served a moment later
    assert main(["convert", str(old)]) == 0
    new.write_text(capsys.readouterr().out)
    assert main(["validate", str(new)]) == 0
    kubectl("delete", "crd", *NAMES)
    kubectl("apply", "-f", str(CRDS))
    old_api_server.wait_until_established("crd", *NAMES)
    wait_until(lambda: _applied(lambda: kubectl("apply", "-f", str(new))))
    stored = kubectl("get", "crd", NAMES[0], "-o", "jsonpath={.status.storedVersions}")
    assert stored == '["v1beta1"]'
    spec = yaml.safe_load(kubectl("-n", namespace, "get", "rflow/orders", "-o", "yaml"))["spec"]
    assert spec["replicationPolicy"] == {"type": "Identity"}
    assert spec["onRecordError"] == {"action": "DeadLetter", "deadLetterTopic": "dead"}
    # Latest counted from the creation of the old object.
    assert spec["startFrom"].keys() == {"mode", "timestamp"}
    # The API server shows the settings in force.
    assert (spec["delivery"], spec["state"]) == ({"mode": "AtLeastOnce"}, "Running")


def test_a_converted_flow_resumes_at_the_offsets_of_its_earlier_version(
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wait_until: Callable[..., Any],
) -> None:
    alias = unique("old")
    topics = make_topic(spec(east), alias, 2), make_topic(spec(east), f"{alias}.internal", 1)
    old = manifest(alias, east, west, f"{alias}.*")
    old["apiVersion"] = "headrace.dev/v1alpha1"
    old["spec"]["source"]["alias"] = alias
    old["spec"] |= {"policy": {"type": "Default"}, "startFrom": "Earliest"}
    old["spec"] |= {"checkpoints": {"enabled": False}, "heartbeats": {"enabled": False}}
    file = tmp_path / "v1alpha1.yaml"
    file.write_text(yaml.safe_dump(old))
    assert main(["convert", str(file)]) == 0
    flow = yaml.safe_load(capsys.readouterr().out)
    assert flow["apiVersion"] == "headrace.dev/v1beta1"

    def copy_all() -> None:
        with FlowRun(tmp_path, [flow], "--until-caught-up") as run:
            assert run.end() == 0, run.output

    for topic, partitions in zip(topics, (2, 1), strict=True):
        produce(spec(east), topic, numbered(200, partitions))
    copy_all()
    now = progress_topic(alias)
    stored = _renamed(west, now, wait_until)
    for topic, partitions in zip(topics, (2, 1), strict=True):
        produce(spec(east), topic, numbered(100, partitions, first=200))
    copy_all()
    for topic in topics:
        found = compare(read(spec(east), topic), read(spec(west), f"{alias}.{topic}"))
        assert found == (0, 0, True), topic
    after = _progress(west, now)
    assert min(one.epoch for one in after) > max(one.epoch for one in stored)


def _progress(cluster: SandboxCluster, topic: str) -> list[Progress]:
    return [progress for _, progress in progress_records(spec(cluster), topic) if progress]


def _renamed(cluster: SandboxCluster, topic: str, wait_until: Callable[..., Any]) -> list[Progress]:
    """Move the records of a topic to the name that it had before v1beta1."""
    stored = _progress(cluster, topic)
    records = [one for records in read(spec(cluster), topic).values() for one in records]
    admin = Admin(spec(cluster))
    make_topic(spec(cluster), earlier_name(topic), 8, **{"cleanup.policy": "compact"})
    produce(spec(cluster), earlier_name(topic), records)
    admin.delete_topic(topic)
    wait_until(lambda: topic not in admin.topics())
    assert stored
    return stored


def test_results_of_a_run_under_the_earlier_name_stay_readable(east: SandboxCluster) -> None:
    run, source = unique("run"), spec(east)
    Admin(source).create_topic(earlier_name(JOURNAL), 1)
    journal.wait_for_topics(Admin(source), {earlier_name(JOURNAL)})
    journal.create(source)
    earlier = [Record(0, journal.record_key(run, key), value, (), 1) for key, value in EARLIER]
    produce(source, earlier_name(JOURNAL), earlier)
    journal.write(source, run, "second", "2")
    assert journal.read_all(source, run) == {"first": "old", "second": 2}


def _applied(apply: Callable[[], object]) -> bool:
    """Return False while the API server does not serve a new definition."""
    try:
        apply()
    except KubectlError as error:
        if "no matches for kind" not in str(error) and "not found" not in str(error):
            raise
        return False
    return True
