"""The commands of docs/migrate-v1beta1.md, on a real API server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import OwnApiServer
from cluster.kubectl import KubectlError
from support.manifests import EAST, WEST, Document

from headrace.cli.main import main

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


@pytest.fixture
def old_api_server(own_api_server: OwnApiServer) -> Iterator[OwnApiServer]:
    """Start an API server that stores v1alpha1, whatever the fields of an object are."""
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
    own_api_server.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *NAMES)
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
    old.write_text(kubectl("get", "rflow,mtest", "--all-namespaces", "-o", "yaml"))
    assert main(["convert", str(old)]) == 0
    new.write_text(capsys.readouterr().out)
    assert main(["validate", str(new)]) == 0
    kubectl("delete", "crd", *NAMES)
    kubectl("apply", "-f", str(CRDS))
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *NAMES)
    wait_until(lambda: _applied(lambda: kubectl("apply", "-f", str(new))))
    stored = kubectl("get", "crd", NAMES[0], "-o", "jsonpath={.status.storedVersions}")
    assert stored == '["v1beta1"]'
    spec = yaml.safe_load(kubectl("-n", namespace, "get", "rflow/orders", "-o", "yaml"))["spec"]
    assert spec["replicationPolicy"] == {"type": "Identity"}
    assert spec["onRecordError"] == {"action": "DeadLetter", "deadLetterTopic": "dead"}
    # Latest counted from the creation of the old object.
    assert spec["startFrom"].keys() == {"mode", "timestamp"}
    # The API server shows what is in force.
    assert (spec["delivery"], spec["state"]) == ({"mode": "AtLeastOnce"}, "Running")


def _applied(apply: Callable[[], object]) -> bool:
    """Return False while the API server does not serve a new definition."""
    try:
        apply()
    except KubectlError as error:
        if "no matches for kind" not in str(error) and "not found" not in str(error):
            raise
        return False
    return True
