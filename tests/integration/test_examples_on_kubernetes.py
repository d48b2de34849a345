"""Every file of examples/, applied as it is written: the messages to the user, and the copies.

(Strict acceptance of each file is tested in test_crds.py.)
"""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import ApiServer
from cluster.kubelet import running_kubelet
from support.flows import spec
from support.operators import Resources, give_rights, running_operator
from support.records import compare, make_topic, numbered, produce, read

from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

pytestmark = pytest.mark.in_one_worker
Wait = Callable[..., Any]
Document = dict[str, Any]
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
KINDS = {"ReplicationFlow": "rflow", "MirrorTest": "mtest"}

EXPECTED = {
    "another-mirror.yaml": {"probe": ("TestRunning", "probe")},
    "canary.yaml": {"orders-canary": ("WaitingForFlow", "there is no ReplicationFlow orders")},
    "exactly-once.yaml": {"payments": ("SourceUnreachable", "127.0.0.1:2")},
    "flow-and-test.yaml": {
        "mirror": ("SourceUnreachable", "127.0.0.1:2"),
        "load": ("WaitingForFlow", "flow mirror is not Ready"),
    },
    "flow.yaml": {"orders": ("SourceUnreachable", "127.0.0.1:2")},
    "migration.yaml": {"migration": ("SourceUnreachable", "127.0.0.1:2")},
    "mirror-maker-2.yaml": {"judged": ("TestRunning", "probe")},
    "oauth-flow.yaml": {"oauth-orders": ("AuthenticationFailed", "Secret idp-ca")},
    "rehearsal.yaml": {"orders-rehearsal": ("Forbidden", "rehearsal.enabled: true")},
    "secure-flow.yaml": {"secure-orders": ("TlsFailed", "Secret east-ca")},
}
"""Reason of Ready, and a word of its message, where the brokers do not exist."""

TOPICS = {
    "exactly-once.yaml": ("payments", "east.payments"),
    "flow-and-test.yaml": ("load-0", "east.load-0"),
    "flow.yaml": ("orders-a", "east.orders-a"),
    "migration.yaml": ("moved", "moved"),
    "secure-flow.yaml": ("orders", "east.orders"),
}
"""A topic that the flow of the example copies, and its copy."""

ALIKE = TOPICS.keys() - {"flow.yaml", "secure-flow.yaml"}
"""Examples that report the same as ``flow.yaml`` without their brokers."""


@pytest.fixture
def resources(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Resources]:
    """Yield a namespace with an operator that allows chaos, and a kubelet."""
    give_rights(api_server, namespace, chaos=True)
    with (
        running_operator(api_server, namespace, tmp_path, chaos=True) as operator,
        running_kubelet(api_server, namespace, tmp_path / "pods"),
    ):
        yield Resources(api_server, namespace)
        assert "internal error" not in operator.log


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield the clusters of the examples: a small one that is migrated to a larger one."""
    plans = [ClusterPlan("east", secure=True), ClusterPlan("west", brokers=3, secure=True)]
    with Sandbox.start("examples", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
        yield sandbox


def status(resources: Resources, document: Document) -> Document:
    """Return an object's status, with its conditions by type."""
    object = resources.get(KINDS[document["kind"]], document["metadata"]["name"])
    found: Document = object.get("status", {})
    of = {one["type"]: one for one in found.get("conditions", [])}
    current = found.get("observedGeneration") == object["metadata"]["generation"]
    return {"Ready": {}, **of} if current else {"Ready": {}}


def test_every_example_has_its_line_here() -> None:
    assert {path.name for path in EXAMPLES} == EXPECTED.keys()


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.long] if path.name in ALIKE else [])
        for path in EXAMPLES
    ],
)
def test_an_example_without_its_brokers_says_what_is_missing(
    example: Path, resources: Resources, wait_until: Wait
) -> None:
    # Ports that nothing listens on, even if another sandbox runs on this machine.
    text = example.read_text().replace("127.0.0.1:1909", "127.0.0.1:")
    documents = list(yaml.safe_load_all(text))
    resources.apply(*documents)
    ours = [document for document in documents if document["kind"] in KINDS]
    assert {one["metadata"]["name"] for one in ours} == EXPECTED[example.name].keys()
    for document in ours:
        reason, word = EXPECTED[example.name][document["metadata"]["name"]]
        condition = wait_until(
            lambda document=document: status(resources, document)["Ready"],
            until=lambda ready, reason=reason, word=word: (
                ready.get("reason") == reason and word in ready["message"]
            ),
        )
        assert condition["status"] == "False"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[] if name in {"flow.yaml", "secure-flow.yaml"} else [pytest.mark.long]
        )
        for name in TOPICS
    ],
)
def test_an_example_with_brokers_is_ready_and_copies(
    name: str, resources: Resources, sandbox: Sandbox, wait_until: Wait
) -> None:
    east, west = sandbox.clusters
    topic, copy = TOPICS[name]
    example = next(path for path in EXAMPLES if path.name == name)
    documents = [there(document, sandbox) for document in yaml.safe_load_all(example.read_text())]
    produce(spec(east), make_topic(spec(east), topic, 2), numbered(300, 2))
    resources.apply(*documents)
    (flow,) = (document for document in documents if document["kind"] == "ReplicationFlow")
    wait_until(
        lambda: status(resources, flow),
        until=lambda seen: (
            (seen["Ready"].get("status"), seen["Ready"].get("reason")) == ("True", "Running")
            and not seen.keys() & {"Stalled", "Reconciling"}
        ),
    )
    wait_until(
        lambda: compare(read(spec(east), topic), read(spec(west), copy)),
        until=lambda found: (found.missing, found.repeated, found.in_order) == (0, 0, True),
    )


def there(document: Document, sandbox: Sandbox) -> Document:
    """Return the document with the addresses and the Secrets of the sandbox."""
    east, west = sandbox.clusters
    if document["kind"] == "Secret":
        folder = sandbox.secrets / document["metadata"]["name"]
        assert document.pop("stringData").keys() == {file.name for file in folder.iterdir()}
        data = {file.name: base64.b64encode(file.read_bytes()) for file in folder.iterdir()}
        return document | {"data": {key: value.decode() for key, value in data.items()}}
    if document["kind"] == "ReplicationFlow":
        for side, cluster in (("source", east), ("target", west)):
            document["spec"][side]["bootstrapServers"] = _servers(document["spec"][side], cluster)
    return document


def _servers(side: Document, cluster: SandboxCluster) -> str:
    if "authentication" in side:
        return cluster.sasl_servers
    return cluster.tls_servers if "tls" in side else cluster.bootstrap_servers
