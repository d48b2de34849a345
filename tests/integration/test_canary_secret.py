"""Secrets that hold a canary: it is looked for wherever something is written, and is nowhere."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cluster.api_server import ApiServer
from cluster.kubelet import Kubelet, running_kubelet
from support.flows import spec
from support.operators import Operator, Resources, give_rights, running_operator
from support.records import arrived, make_topic, numbered, produce, unique
from support.security import CANARY, by_certificate, by_password, change_password, command_lines

from headrace.sandbox import Cluster, ClusterPlan, Sandbox

pytestmark = pytest.mark.in_one_worker
Wait = Callable[..., Any]
LONG_S = 120.0
STEM = "canary-7351"
PATHS = ("/metrics", "/healthz", "/readyz", "/", "/debug")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """``east`` and ``west`` behind TLS; at ``east`` the canary is the user's password."""
    home = tmp_path_factory.mktemp("sandboxes")
    plans = [ClusterPlan(name, secure=True) for name in ("east", "west")]
    with Sandbox.start("canary", plans, home=home) as sandbox:
        change_password(sandbox.cluster("east"), CANARY)
        yield sandbox


@pytest.fixture
def source(locked: Sandbox) -> Cluster:
    return locked.cluster("east")


@pytest.fixture
def target(locked: Sandbox) -> Cluster:
    return locked.cluster("west")


class Scene:
    """An operator and drivers that say all they can, and everything that they have written."""

    def __init__(
        self, resources: Resources, operator: Operator, kubelet: Kubelet, locked: Sandbox
    ) -> None:
        self.resources, self.operator, self.kubelet = resources, operator, kubelet
        self._locked = locked

    def make_secrets(self, password: str) -> list[str]:
        """The Secrets of both clusters, ``password`` among them; what must not be seen of them."""
        key = (self._locked.secrets / "west-client" / "tls.key").read_text()
        for folder in self._locked.secrets.iterdir():
            files = {file.name: file.read_text() for file in folder.iterdir()}
            if folder.name == "east-user":
                files = {"password": password}
            self.resources.apply(secret(folder.name, files))
        return [password, json.dumps(password)[1:-1], *key.splitlines()[1:-1]]

    def conditions(self, kind: str, name: str) -> dict[str, dict[str, str]]:
        status = self.resources.get(kind, name).get("status", {})
        return {one["type"]: one for one in status.get("conditions", [])}

    def places(self) -> dict[str, str]:
        """All that can be looked at, but Secrets, by what it is."""
        kinds = self.resources.kubectl(
            "api-resources", "--namespaced", "--verbs=list", "--output=name"
        ).split()
        kinds = [kind for kind in kinds if kind != "secrets"]
        pods = self.kubelet.pods()
        assert pods
        return {
            "objects": self.resources.kubectl("get", ",".join(kinds), "-o", "json",
                                              "--show-managed-fields"),
            "operator's log": self.operator.log,
            **{f"operator's {path}": self.operator.get(path) for path in PATHS},
            "command lines and environments": command_lines(),
            **{f"log of {pod.name}": pod.log for pod in pods},
            **{f"{pod.ip}{path}": answer(pod.ip, path) for pod in pods for path in PATHS},
            **{f"log of {broker}": broker.log.read_text(errors="replace")
               for cluster in self._locked.clusters for broker in cluster.brokers},
        }  # fmt: skip


def answer(ip: str, path: str) -> str:
    """Of a driver's port, whatever it answers."""
    try:
        url = f"http://{ip}:8080{path}"
        return urllib3.request("GET", url, timeout=5, retries=False).data.decode()
    except urllib3.exceptions.HTTPError as error:
        return str(error)


def secret(name: str, files: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": files}


def assert_unseen(values: list[str], places: dict[str, str]) -> None:
    encoded = [base64.b64encode(value.encode()).decode() for value in values]
    for where, text in places.items():
        seen = [value for value in (*values, *encoded, STEM) if value in text]
        assert not seen, f"a secret is to be seen in {where}"


@pytest.fixture
def scene(
    *,
    locked: Sandbox,
    api_server: ApiServer,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "DEBUG")
    give_rights(api_server, namespace)
    with (
        running_operator(api_server, namespace, tmp_path) as operator,
        running_kubelet(api_server, namespace, tmp_path / "pods") as kubelet,
    ):
        yield Scene(Resources(api_server, namespace), operator, kubelet, locked)


def flow(name: str, source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    """Its clients say all that they can."""
    clusters = {"source": source, "target": target}
    debugging = {at: {**fields, "config": {"debug": "all"}} for at, fields in clusters.items()}
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {**debugging, "topics": {"include": [name]}, "drivers": {"replicas": 1}},
    }


def test_a_flow_and_a_test_that_work_show_no_secret(
    scene: Scene, source: Cluster, target: Cluster, wait_until: Wait
) -> None:
    name = make_topic(spec(source), unique("canary"), 2)
    produce(spec(source), name, numbered(500, 2))
    values = scene.make_secrets(CANARY)
    test = {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": {"flowName": name, "load": {"messages": 1000}},
    }
    scene.resources.apply(flow(name, by_password(source), by_certificate(target)), test)
    wait_until(
        lambda: arrived(spec(target), f"east.{name}"), within_s=LONG_S, until=partial(eq, 500)
    )
    scene.resources.kubectl("wait", "--for=condition=Ready", f"rflow/{name}", "--timeout=120s")
    wait_until(lambda: scene.resources.get("jobs")["items"], within_s=LONG_S)
    places = scene.places()
    assert name in places["objects"]
    pod, *_ = scene.kubelet.pods()  # the driver; the test's first Job begins when the flow is Ready
    assert "driver starts" in places[f"log of {pod.name}"]
    assert "leads" in places["operator's log"]
    assert f'flow="{name}"' in places["operator's /metrics"]
    assert f'flow="{name}"' in places[f"{pod.ip}/metrics"]
    assert_unseen(values, places)


@pytest.mark.parametrize("type", ["ScramSha512", "Plain"])
def test_a_password_that_is_wrong_is_not_shown_either(
    type: str, scene: Scene, source: Cluster, target: Cluster, wait_until: Wait
) -> None:
    name = unique("wrong")
    wrong = f"wrong {CANARY}"
    values = scene.make_secrets(wrong)
    scene.resources.apply(flow(name, by_password(source, type), by_certificate(target)))
    stalled = wait_until(
        lambda: scene.conditions("rflow", name).get("Stalled"),
        within_s=LONG_S,
        until=lambda found: found and found["reason"] == "AuthenticationFailed",
    )
    assert "key password of Secret east-user" in stalled["message"]
    assert_unseen(values, scene.places())


def test_a_key_that_is_damaged_is_not_shown_either(
    scene: Scene, source: Cluster, target: Cluster, wait_until: Wait
) -> None:
    name = unique("damaged")
    values = scene.make_secrets(CANARY)
    scene.resources.apply(
        secret("west-client", {"tls.crt": f"no chain {CANARY}", "tls.key": f"no key {CANARY}"}),
        flow(name, by_password(source), by_certificate(target)),
    )
    stalled = wait_until(
        lambda: scene.conditions("rflow", name).get("Stalled"),
        within_s=LONG_S,
        until=lambda found: found and found["reason"] == "TlsFailed",
    )
    assert "Secret west-client" in stalled["message"]
    assert_unseen(values, scene.places())


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_spark_jobs_of_a_test_do_not_show_a_wrong_password(
    locked: Sandbox, source: Cluster, tmp_path: Path
) -> None:
    """A right one: ``test_security.py``."""
    password = f"wrong {CANARY}"
    user = tmp_path / "secrets" / "east-user"
    user.mkdir(parents=True)
    (user / "password").write_text(password)
    for name in ("east-ca", "west-ca", "west-client"):
        (tmp_path / "secrets" / name).symlink_to(locked.secrets / name)
    test = {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "MirrorTest",
        "metadata": {"name": "canary"},
        "spec": {
            "source": by_password(source) | {"config": {"debug": "security"}},
            "target": by_certificate(locked.cluster("west")),
            "load": {"topics": 1, "partitions": 1, "producers": 1, "messages": 100},
            "settleSeconds": 3,
        },
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(test))
    command = [sys.executable, "-m", "headrace", "verify", str(file)]
    command += ["--secrets", str(tmp_path / "secrets"), "--report", str(tmp_path / "report")]
    seen = []
    with (tmp_path / "verify.log").open("wb") as log:
        verify = subprocess.Popen(command, stdout=log, stderr=log)
        while verify.poll() is None:
            seen.append(command_lines())
            try:
                verify.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
    output = (tmp_path / "verify.log").read_text()
    assert verify.returncode == 2, output
    assert "Secret east-user" in output
    report = {str(f): f.read_text(errors="replace") for f in (tmp_path / "report").rglob("*")
              if f.is_file()}  # fmt: skip
    assert_unseen([password], {"output": output, "command lines": "\n".join(seen), **report})
