"""Secrets with a canary, which must not appear in any place to which something is written."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from cluster.api_server import ApiServer
from cluster.kubelet import running_kubelet
from support.canary import Scene, assert_unseen, secret
from support.flows import spec
from support.operators import Resources, give_rights, running_operator
from support.records import arrived, make_topic, numbered, produce, unique
from support.security import CANARY, by_certificate, by_password, change_password, command_lines
from support.token_endpoint import (
    CLIENT,
    SECRET,
    TokenEndpoint,
    by_token,
    running_token_endpoint,
    secrets_of,
)
from support.verifying import verify_command

from headrace.sandbox import ClusterPlan, Sandbox, SandboxCluster

pytestmark = pytest.mark.in_one_worker
Wait = Callable[..., Any]
TOKENS_LAST_S = 6.0


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenEndpoint]:
    with running_token_endpoint() as endpoint:
        endpoint.lifetime_s = TOKENS_LAST_S
        yield endpoint


@pytest.fixture(scope="module")
def locked(issuer: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield ``east`` and ``west`` behind TLS.

    Both accept tokens. The canary is the user's password at ``east``.
    """
    properties = issuer.broker_properties()
    properties["sasl.enabled.mechanisms"] += ",PLAIN"
    plans = [ClusterPlan(name, secure=True, properties=properties) for name in ("east", "west")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", issuer.java_options())
        with Sandbox.start("canary", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
            patch.undo()
            change_password(sandbox.cluster("east"), CANARY)
            yield sandbox


@pytest.fixture
def source(locked: Sandbox) -> SandboxCluster:
    return locked.cluster("east")


@pytest.fixture
def target(locked: Sandbox) -> SandboxCluster:
    return locked.cluster("west")


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
    """Return a flow whose clients log as much as they can."""
    clusters = {"source": source, "target": target}
    debugging = {at: {**fields, "config": {"debug": "all"}} for at, fields in clusters.items()}
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {**debugging, "topics": {"include": [name]}, "drivers": {"replicas": 1}},
    }


def test_a_flow_and_a_test_that_work_show_no_secret(
    scene: Scene, source: SandboxCluster, target: SandboxCluster, wait_until: Wait
) -> None:
    name = make_topic(spec(source), unique("canary"), 2)
    produce(spec(source), name, numbered(500, 2))
    values = [CANARY, *scene.make_secrets({"east-user": {"password": CANARY}})]
    test = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": {"flowName": name, "load": {"messages": 1000}},
    }
    scene.resources.apply(flow(name, by_password(source), by_certificate(target)), test)
    wait_until(lambda: arrived(spec(target), f"east.{name}"), until=partial(eq, 500))
    scene.resources.kubectl("wait", "--for=condition=Ready", f"rflow/{name}", "--timeout=300s")
    wait_until(lambda: scene.resources.get("jobs")["items"])
    places = scene.places()
    assert name in places["objects"]
    pod, *_ = scene.kubelet.pods()  # the driver; the test's first Job begins when the flow is Ready
    assert "driver starts" in places[f"log of {pod.name}"]
    assert "leads" in places["operator's log"]
    assert f'flow="{name}"' in places["operator's /metrics"]
    assert f'flow="{name}"' in places[f"{pod.ip}/metrics"]
    assert_unseen(values, places)


@pytest.mark.parametrize("type", ["ScramSha512", pytest.param("Plain", marks=pytest.mark.long)])
def test_a_password_that_is_wrong_is_not_shown_either(
    type: str, scene: Scene, source: SandboxCluster, target: SandboxCluster, wait_until: Wait
) -> None:
    name = unique("wrong")
    wrong = f"wrong {CANARY}"
    values = [wrong, *scene.make_secrets({"east-user": {"password": wrong}})]
    scene.resources.apply(flow(name, by_password(source, type), by_certificate(target)))
    stalled = wait_until(
        lambda: scene.conditions("rflow", name).get("Stalled"),
        until=lambda found: found and found["reason"] == "AuthenticationFailed",
    )
    assert "key password of Secret east-user" in stalled["message"]
    assert_unseen(values, scene.places())


def test_a_key_that_is_damaged_is_not_shown_either(
    scene: Scene, source: SandboxCluster, target: SandboxCluster, wait_until: Wait
) -> None:
    name = unique("damaged")
    damaged = {"tls.crt": f"no chain {CANARY}", "tls.key": f"no key {CANARY}"}
    changed = {"east-user": {"password": CANARY}, "west-client": damaged}
    values = [CANARY, *scene.make_secrets(changed)]
    scene.resources.apply(flow(name, by_password(source), by_certificate(target)))
    stalled = wait_until(
        lambda: scene.conditions("rflow", name).get("Stalled"),
        until=lambda found: found and found["reason"] == "TlsFailed",
    )
    assert "Secret west-client" in stalled["message"]
    assert_unseen(values, scene.places())


def test_tokens_and_what_they_are_asked_for_with_are_not_shown(
    *,
    scene: Scene,
    issuer: TokenEndpoint,
    source: SandboxCluster,
    target: SandboxCluster,
    wait_until: Wait,
) -> None:
    name = make_topic(spec(source), unique("token"), 2)
    produce(spec(source), name, numbered(500, 2))
    known = {at: text(content) for at, content in secrets_of(issuer).items()}
    wrong = {"secret": f"wrong {SECRET}"}
    scene.make_secrets({**known, "issuer-client": wrong})
    scene.resources.apply(flow(name, by_token(source, issuer), by_token(target, issuer)))
    stalled = wait_until(
        lambda: scene.conditions("rflow", name).get("Stalled"),
        until=lambda found: found and found["reason"] == "AuthenticationFailed",
    )
    assert "key secret of Secret issuer-client" in stalled["message"]
    refused = scene.places()
    scene.resources.apply(secret("issuer-client", known["issuer-client"]))
    wait_until(lambda: arrived(spec(target), f"east.{name}"), until=partial(eq, 500))
    replaced = len(issuer.issued) + 2
    wait_until(lambda: len(issuer.issued) > replaced)
    scene.resources.kubectl("wait", "--for=condition=Ready", f"rflow/{name}", "--timeout=300s")
    places = scene.places()
    (pod, *_) = scene.kubelet.pods()
    assert "driver starts" in places[f"log of {pod.name}"]
    assert f'flow="{name}"' in places[f"{pod.ip}/metrics"]
    # The part that is different in each token, and the credentials for the endpoint.
    signatures = [token.rpartition(".")[2] for token in issuer.issued]
    login = f"{quote_plus(CLIENT)}:{quote_plus(SECRET)}"
    for found in (refused, places):
        assert_unseen([SECRET, wrong["secret"], login, *signatures], found)


def text(content: Mapping[str, bytes]) -> dict[str, str]:
    return {key: value.decode() for key, value in content.items()}


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_spark_jobs_of_a_test_do_not_show_a_wrong_password(
    locked: Sandbox, source: SandboxCluster, tmp_path: Path
) -> None:
    """Use a wrong password; ``test_security.py`` has the test of a right one."""
    password = f"wrong {CANARY}"
    user = tmp_path / "secrets" / "east-user"
    user.mkdir(parents=True)
    (user / "password").write_text(password)
    for name in ("east-ca", "west-ca", "west-client"):
        (tmp_path / "secrets" / name).symlink_to(locked.secrets / name)
    test = {
        "apiVersion": "headrace.dev/v1beta1",
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
    command = verify_command(file, tmp_path / "report", "--secrets", str(tmp_path / "secrets"))
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
