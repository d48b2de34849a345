"""The stand-in kubelet: pods of a real API server as processes of this machine."""

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
import pytest
from cluster.api_server import ApiServer, OwnApiServer
from cluster.kubelet import Kubelet

SERVE = """
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("serving on", os.environ["POD_IP"], "as", os.environ["WHO"], flush=True)
def end(*_):
    print("ended in order", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
http.server.HTTPServer((os.environ["POD_IP"], 8080), Handler).serve_forever()
"""
PROBE = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1}


def deployment(replicas: int = 1, grace_s: int = 300, **more: Any) -> dict[str, Any]:
    """Return a Deployment of a small server named ``web``; ``more`` are fields of the container."""
    container = {
        "name": "web",
        "image": "any",
        "command": ["python", "-c", SERVE],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "WHO", "value": "$(NAME)@$(POD_IP)"},
        ],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": PROBE,
        **more,
    }
    secret = {"secretName": "east-user", "optional": True}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": grace_s,
            "volumes": [{"name": "east-user", "secret": secret}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }


class Web:
    """The Deployment ``web`` of a test's namespace."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api, self.namespace = api, namespace

    def apply(self, replicas: int = 1, grace_s: int = 300, **more: Any) -> None:
        self.api.apply(deployment(replicas, grace_s, **more), namespace=self.namespace)

    def kubectl(self, *arguments: str) -> str:
        return self.api.kubectl("-n", self.namespace, *arguments)

    def wait_until_rolled_out(self) -> None:
        self.kubectl("rollout", "status", "deployment/web", "--timeout=300s")

    def pods(self) -> list[Any]:
        found: list[Any] = self.api.get("-n", self.namespace, "pods")["items"]
        return found

    def container(self) -> dict[str, Any]:
        """Return the status of the only pod's container, or an empty one."""
        statuses = [pod["status"].get("containerStatuses") for pod in self.pods()]
        return statuses[0][0] if statuses and statuses[0] else {}


@pytest.fixture
def web(api_server: ApiServer, namespace: str, kubelet: Kubelet) -> Web:
    return Web(api_server, namespace)


def test_a_deployment_runs_and_each_pod_has_an_address_of_its_own(
    web: Web, kubelet: Kubelet
) -> None:
    web.apply(replicas=2)
    web.wait_until_rolled_out()
    addresses = {pod["status"]["podIP"] for pod in web.pods()}
    assert len(addresses) == 2
    for pod in kubelet.pods():
        assert f"serving on {pod.ip} as {pod.name}@{pod.ip}" in pod.log
    assert {pod.ip for pod in kubelet.pods()} == addresses


def test_pods_that_are_not_wanted_any_more_end_in_order(
    web: Web, kubelet: Kubelet, wait_until: Callable[..., Any]
) -> None:
    web.apply(replicas=2)
    web.wait_until_rolled_out()
    before = kubelet.pods()
    web.kubectl("scale", "deployment/web", "--replicas=1")
    wait_until(lambda: len(web.pods()) == 1)
    ended = wait_until(lambda: [pod for pod in before if pod not in kubelet.pods()])
    assert ["ended in order" in pod.log for pod in ended] == [True]
    web.kubectl("delete", "deployment", "web")
    wait_until(lambda: not web.pods() and not kubelet.pods())


def test_a_process_that_does_not_end_in_its_grace_period_is_killed(
    web: Web, kubelet: Kubelet, wait_until: Callable[..., object]
) -> None:
    web.apply(grace_s=3)
    web.wait_until_rolled_out()
    process = psutil.Process(kubelet.pods()[0].pid)
    process.send_signal(signal.SIGSTOP)  # it cannot hear the SIGTERM
    web.kubectl("delete", "deployment", "web")
    wait_until(lambda: not web.pods())
    assert not process.is_running()


def test_a_killed_container_is_started_again(
    web: Web, kubelet: Kubelet, wait_until: Callable[..., Any]
) -> None:
    web.apply()
    web.wait_until_rolled_out()
    before = web.container()
    kubelet.pods()[0].kill()
    after = wait_until(web.container, until=lambda c: c.get("restartCount") == 1 and c["ready"])
    assert after["containerID"] != before["containerID"]
    assert after["lastState"]["terminated"]["exitCode"] == 137
    assert len(web.pods()) == 1


def test_a_frozen_container_is_restarted_by_its_liveness_probe(
    web: Web, kubelet: Kubelet, wait_until: Callable[..., Any]
) -> None:
    web.apply(grace_s=3, livenessProbe={**PROBE, "initialDelaySeconds": 5, "failureThreshold": 2})
    web.wait_until_rolled_out()
    kubelet.pods()[0].freeze()
    wait_until(web.container, until=lambda c: c.get("restartCount", 0) >= 1 and c["ready"])


def test_a_secret_reaches_its_folder_whenever_it_appears_and_changes(
    web: Web, kubelet: Kubelet, wait_until: Callable[..., object]
) -> None:
    mount = {"name": "east-user", "mountPath": "/etc/secrets/east-user"}
    web.apply(volumeMounts=[mount], args=["--secrets=/etc/secrets"])
    web.wait_until_rolled_out()
    pod = kubelet.pods()[0]
    secrets = pod.mounted("/etc/secrets")
    assert f"--secrets={secrets}" in psutil.Process(pod.pid).cmdline()
    password = secrets / "east-user" / "password"
    assert not password.exists()

    def read() -> str:
        with suppress(FileNotFoundError):
            return password.read_text()
        return ""

    literals = ("secret", "generic", "east-user")
    web.kubectl("create", *literals, "--from-literal=password=first")
    wait_until(read, until=lambda seen: seen == "first")
    web.kubectl("patch", "secret", "east-user", "-p", '{"stringData": {"password": "second"}}')
    wait_until(read, until=lambda seen: seen == "second")
    web.kubectl("delete", "secret", "east-user")
    wait_until(read, until=lambda seen: not seen)


def test_a_pod_speaks_to_the_api_as_its_service_account(
    web: Web, kubelet: Kubelet, wait_until: Callable[..., object]
) -> None:
    ask = """
import kubernetes
kubernetes.config.load_config()
api = kubernetes.client.AuthenticationV1Api()
answer = api.create_self_subject_review({})
print(answer.status.user_info.username, answer.status.user_info.extra, flush=True)
"""
    web.apply(command=["python", "-c", ask + SERVE])
    web.wait_until_rolled_out()
    pod = kubelet.pods()[0]
    assert f"system:serviceaccount:{web.namespace}:default" in pod.log
    assert pod.name in pod.log


def test_containers_run_on_without_an_api_server_and_are_told_of_later(
    own_api_server: OwnApiServer, web: Web, kubelet: Kubelet, wait_until: Callable[..., Any]
) -> None:
    web.apply()
    web.wait_until_rolled_out()
    pod = kubelet.pods()[0]
    own_api_server.kill()
    pod.kill()
    wait_until(lambda: pod.container().restart_count == 1)
    own_api_server.start()
    wait_until(web.container, until=lambda c: c.get("restartCount") == 1 and c["ready"])


def test_what_the_stand_in_does_not_know_is_said_in_the_status(
    web: Web, wait_until: Callable[..., object]
) -> None:
    web.apply(livenessProbe={"tcpSocket": {"port": 80}})
    wait_until(
        lambda: web.container().get("state"),
        until=lambda state: "only httpGet and exec probes" in str(state),
    )
