"""Commands of the pages for a cluster, in a shell with HOME and PATH only.

Only names and addresses differ from what the pages print. The lines with ``kubectl logs`` are left
out, because no node runs here.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer, OwnApiServer
from cluster.kubelet import running_kubelet
from support.flows import spec
from support.helm import helm_binary
from support.manifests import flow, task
from support.operators import Resources
from support.page_commands import ROOT, command, with_words
from support.plain_shell import PlainShell
from support.records import make_topic, unique
from support.shared_api_server import CRDS

from headrace.sandbox import SandboxCluster

pytestmark = pytest.mark.usefixtures("helm_program")


def _shell(api_server: ApiServer, folder: Path, namespace: str) -> PlainShell:
    """Return a shell whose kubectl has the permissions of an administrator."""
    shell = PlainShell(folder, kubectl=api_server.own_kubectl, helm=str(helm_binary()))
    (shell.home / ".kube").mkdir()
    shutil.copy(api_server.kubeconfig, shell.home / ".kube" / "config")
    shell.run(f"kubectl config set-context --current --namespace={namespace}")
    return shell


def _without_logs(text: str) -> str:
    return "".join(
        line for line in text.splitlines(True) if not re.search(r"kubectl .*logs ", line)
    )


def _create_kind(shell: PlainShell, name: str, kind: str, short_name: str) -> None:
    """Create a kind of another operator, with any fields."""
    plural, _, group = name.partition(".")
    version = """{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
      x-kubernetes-preserve-unknown-fields: true}}}"""
    (shell.folder / "kind.yaml").write_text(
        f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {name}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, shortNames: [{short_name}]}}
  versions: [{version}]
"""
    )
    shell.run(
        "kubectl apply -f kind.yaml\n"
        f"until kubectl wait --for=condition=Established crd/{name}; do sleep 0.2; done\n"
        f"until kubectl get {plural}.{group}; do sleep 0.2; done"
    )


def test_commands_on_objects(
    api_server: ApiServer,
    namespace: str,
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
) -> None:
    shell = _shell(api_server, tmp_path, namespace)
    sides: dict[str, Any] = {
        side.name: {"alias": side.name, "bootstrapServers": side.bootstrap_servers}
        for side in (east, west)
    }
    name = make_topic(spec(east), unique("orders"), 4)
    unit_name = f"{name}-source-task-0"
    one = flow(name, source=sides["east"], target=sides["west"])
    resources = Resources(api_server, namespace)
    partitions = [{"topic": name, "partitions": "0-3"}]
    unit = task(name, partitions=partitions, driverName="driver-1")
    unit["metadata"]["labels"] = {"headrace.dev/flow": name}
    resources.apply(one, unit)
    resources.kubectl(
        "patch", f"rtask/{unit_name}", "--subresource=status", "--type=merge",
        "-p", '{"status": {"driverName": "driver-1", "driverIncarnation": "a", "epoch": 1,'
        ' "phase": "Running"}}',
    )  # fmt: skip
    (shell.folder / "secrets").mkdir()
    words = {
        "NAMESPACE": namespace,
        "NAME": name,
        "FLOW": name,
        "orders-flow": name,
        "orders": name,
        "TASK": unit_name,
        "TOPIC/PARTITION": f"{name}/1",
        "shop": namespace,
        "kafka": namespace,
    }

    def run(page: str, begin: str) -> str:
        return shell.run(_without_logs(with_words(command(page, begin), words)))

    assert unit_name in run("runbook", "kubectl -n NAMESPACE get rflow")
    run("operate", "headrace flow pause orders-flow")
    assert resources.flow(name)["spec"]["pausedPartitions"] == partitions
    for page, begin in (
        ("operate", "headrace flow reset"),
        ("runbook", "kubectl headrace flow reset"),
    ):
        run(page, begin)
        annotations = resources.flow(name)["metadata"]["annotations"]
        assert annotations.pop("headrace.dev/reset").startswith(f"{name}/")
    for line in with_words(command("runbook", "kubectl headrace task restart"), words).splitlines():
        shell.run(line)
        annotations = resources.get("rtask", unit_name)["metadata"]["annotations"]
        assert "headrace.dev/restart" in annotations
        resources.kubectl("annotate", f"rtask/{unit_name}", "headrace.dev/restart-")
    patch = 'kubectl patch rflow/orders --type=merge -p \'{"spec": {'
    run("fail-over", f'{patch}"sourceWatch"')
    assert resources.flow(name)["spec"]["sourceWatch"]["enabled"]
    run("fail-over", f'{patch}"state"')
    assert resources.flow(name)["spec"]["state"] == "Stopped"

    _create_kind(shell, "kafkamirrormaker2s.kafka.strimzi.io", "KafkaMirrorMaker2", "kmm2")
    mirror = (ROOT / "tests/unit/convert/inputs/strimzi-minimal.yaml").read_text()
    for side, cluster in (("source", east), ("target", west)):
        mirror = mirror.replace(f"my-{side}-kafka:9092", cluster.bootstrap_servers)
    mirror = mirror.replace("test-kafka-mirror-maker-2", "my-mirror")
    (shell.folder / "kmm2.yaml").write_text(mirror)
    shell.run("kubectl apply -f kmm2.yaml")
    run("from-strimzi", "kubectl get kmm2")
    run("from-strimzi", "kubectl patch kmm2")
    assert "stopped" in shell.run("kubectl get kmm2 my-mirror -o yaml")
    run("from-strimzi", "headrace job import")
    (shell.folder / "flow.yaml").write_text(shell.run(f"kubectl get rflow {name} -o yaml"))
    run("fail-over", "headrace job failover")
    run("audits", "headrace job audit")
    jobs = {job["metadata"]["name"] for job in resources.get("jobs")["items"]}
    verbs = {f"headrace-{verb}-{name}" for verb in ("failover", "audit")}
    assert jobs == {"headrace-import-my-mirror", *verbs}


@pytest.fixture
def definitions(own_api_server: OwnApiServer) -> Iterator[None]:
    """Restore headrace's kinds after a test that deletes them."""
    yield
    own_api_server.install_crds(CRDS)


@pytest.mark.long
@pytest.mark.usefixtures("definitions")
def test_commands_of_a_release(
    own_api_server: OwnApiServer,
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    shell = _shell(own_api_server, tmp_path, "shop")
    examples = shell.folder / "examples"
    shutil.copytree(ROOT / "examples", examples)
    text = (examples / "flow.yaml").read_text()
    text = text.replace("127.0.0.1:19092", east.bootstrap_servers)
    (examples / "flow.yaml").write_text(text.replace("127.0.0.1:19093", west.bootstrap_servers))
    definitions = command("migrate-v1beta1", "kubectl delete crd")

    shell.run(definitions)
    with (
        running_kubelet(own_api_server, "headrace", tmp_path / "headrace"),
        running_kubelet(own_api_server, "shop", tmp_path / "shop"),
    ):
        assert shell.run(command("install", "helm install headrace")).count("1/1") == 2
        assert "True" in shell.run(command("install", "kubectl create namespace shop"))
        _create_kind(shell, "podmonitors.monitoring.coreos.com", "PodMonitor", "pmon")
        _create_kind(shell, "prometheusrules.monitoring.coreos.com", "PrometheusRule", "prule")
        shell.run(command("monitoring", "helm upgrade"))
        shell.run(command("upgrade", "helm upgrade"))
        shell.run(command("upgrade", "helm install canary"))
        shell.run(command("migrate-v1beta1", "kubectl get rflow,mtest"))
        # The definitions are not deleted, so the operator may write a status before the apply.
        shell.run("sed -i /resourceVersion:/d v1beta1.yaml")
        shell.run(command("migrate-v1beta1", "kubectl -n headrace scale"))
        shell.run(command("migrate-v1beta1", "helm upgrade"))
        assert '["v1beta1"]' in shell.run(command("migrate-v1beta1", "kubectl apply"))
        shell.run(command("upgrade", "kubectl get rflow,mirrortest"))
        shell.run(command("upgrade", "helm uninstall"))
        shell.run("helm uninstall canary --namespace headrace-canary")
        shell.run(command("upgrade", "helm install headrace"))
        shell.run(f"helm uninstall headrace --namespace headrace\n{definitions}")
        shell.run(command("install", "helm install shop"))
        shell.run(f"helm uninstall shop --namespace shop\n{definitions}")
        shell.run(command("charts/headrace/README", "helm install headrace"))
        shell.run(command("charts/headrace/README", "helm install shop"))
        shell.run("helm uninstall shop -n shop\nhelm uninstall headrace -n headrace")
