"""The cluster of the end-to-end tests works like a real cluster, and fails like one."""

from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
from cluster.archive import read_archive, write_archive
from cluster.build import small_binary
from cluster.kubectl import KubectlError
from cluster.node.cell import HIDDEN_FOLDERS, KERNEL_SETTINGS
from cluster.node.layout import RUN, cgroups, kubelet_folder
from cluster.real import Cluster, CommandError, Part, run
from e2e.stage import RESTRICTED

IMAGE = "localhost/web:1"
WaitUntil = Callable[..., Any]


class Web:
    """Pods of a namespace that serve their names, and that fetch pages."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.cluster.apply(*objects, namespace=self.namespace)

    def serve(self, name: str) -> str:
        """Start a pod that serves, and return its address once it is ready."""
        self.apply(pod(name, "serve"))
        self.wait_ready(name)
        return str(self.pod(name)["status"]["podIP"])

    def wait_ready(self, name: str, within: str = "120s") -> None:
        self.kubectl("wait", "--for=condition=Ready", f"--timeout={within}", f"pod/{name}")

    def pod(self, name: str) -> Any:
        return self.cluster.get("-n", self.namespace, "pod", name)

    def fetch(self, pod: str, url: str, within: str = "30s") -> str:
        """Return the answer that ``pod`` receives. Raises KubectlError if there is none."""
        return self.kubectl("exec", pod, "--", "/web", "-within", within, "get", url)

    def reaches(self, pod: str, url: str) -> bool:
        """Return whether an answer arrives soon, for repeated attempts or to expect none.

        Raises KubectlError when ``pod`` itself was not reached.
        """
        try:
            self.fetch(pod, url, within="2s")
        except KubectlError as error:
            if "exit code" not in str(error):
                raise
            return False
        return True


def pod(name: str, *arguments: str, **metadata: Any) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "web",
        "image": IMAGE,
        "args": list(arguments),
        "securityContext": {**RESTRICTED, "runAsUser": 65532},
    }
    if arguments == ("serve",):
        container["readinessProbe"] = {"httpGet": {"port": 8080}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, **metadata},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


def life(pod: dict[str, Any]) -> tuple[str, str]:
    """Another one after a restart, of the pod or of its container."""
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": "server"}, "ports": ports, **spec},
    }


@pytest.fixture(scope="session")
def image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    archive = tmp_path_factory.mktemp("images") / "web.tar"
    cluster.load(write_archive(archive, IMAGE, {"/web": small_binary("web")}, ["/web"]))


@pytest.fixture
def web(cluster: Cluster, namespace: str, image: None) -> Web:
    return Web(cluster, namespace)


def test_a_pod_runs_and_is_looked_into(web: Web) -> None:
    web.serve("server")
    assert web.kubectl("logs", "server") == "serving as server\n"
    assert web.fetch("server", "http://127.0.0.1:8080") == "server"
    with pytest.raises(KubectlError, match="exit code 2"):
        web.kubectl("exec", "server", "--", "/web", "nonsense")


def test_services_are_reached_by_their_names(
    web: Web, cluster: Cluster, wait_until: WaitUntil
) -> None:
    address = web.serve("server")
    web.serve("client")
    web.apply(service("balanced"), service("headless", clusterIP="None"))
    full = f"http://balanced.{web.namespace}.svc.cluster.local"
    wait_until(lambda: web.reaches("client", full))
    assert web.fetch("client", "http://balanced") == "server"
    wait_until(lambda: web.reaches("client", "http://headless:8080"))
    assert web.fetch("client", "http://headless:8080") == "server"
    assert web.fetch("server", full) == "server", "a pod reaches itself by its Service"
    with pytest.raises(KubectlError, match="no such host"):
        web.fetch("client", "http://nobody")
    cluster_ip = cluster.get("-n", web.namespace, "service", "balanced")["spec"]["clusterIP"]
    for host in (cluster_ip, f"{address}:8080"):
        assert cluster.run(small_binary("web"), "get", f"http://{host}") == "server"


def test_a_job_completes(web: Web) -> None:
    url = f"http://{web.serve('server')}:8080"
    pod_spec = {**pod("", "get", url)["spec"], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"template": {"spec": pod_spec}, "backoffLimit": 0},
    }
    web.apply(job)
    web.kubectl("wait", "--for=condition=Complete", "--timeout=300s", "job/once")
    assert web.kubectl("logs", "job/once") == "server"


def test_a_newer_image_of_the_same_name(web: Web, tmp_path: Path) -> None:
    name, binary = "localhost/changing:1", small_binary("web")
    for version in ("first", "second"):
        archive = tmp_path / f"{version}.tar"
        files: dict[str, Path | bytes] = {"/web": binary, "/version": version.encode()}
        for _ in range(2):  # the second time it exists
            web.cluster.load(write_archive(archive, name, files, ["/web"]))
        new = pod(version, "serve")
        new["spec"]["containers"][0]["image"] = name
        web.apply(new)
        web.wait_ready(version)
        (status,) = web.pod(version)["status"]["containerStatuses"]
        assert status["imageID"].endswith(read_archive(archive)[name])


def test_pod_security_refuses(web: Web) -> None:
    privileged = pod("privileged", "serve")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        web.apply(privileged)


def test_a_killed_container_is_started_again(web: Web, wait_until: WaitUntil) -> None:
    web.serve("server")
    web.cluster.signal_container(web.namespace, "server", Signals.SIGKILL)

    def restarts() -> int:
        (status,) = web.pod("server")["status"]["containerStatuses"]
        return int(status["restartCount"]) if status["ready"] else 0

    assert wait_until(restarts) == 1
    last = web.pod("server")["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 137


def test_a_frozen_container_answers_once_it_is_thawed(web: Web) -> None:
    url = f"http://{web.serve('server')}:8080"
    web.serve("client")
    web.cluster.signal_container(web.namespace, "server", Signals.SIGSTOP)
    assert not web.reaches("client", url)
    web.cluster.signal_container(web.namespace, "server", Signals.SIGCONT)
    assert web.fetch("client", url) == "server"


def test_a_partition_is_between_two_and_heals(web: Web) -> None:
    server, client = web.serve("server"), web.serve("client")
    other = web.serve("other")
    with web.cluster.dropping(client, server):
        assert not web.reaches("client", f"http://{server}:8080")
        assert not web.reaches("server", f"http://{client}:8080")
        assert web.fetch("client", f"http://{other}:8080") == "other"
        assert web.fetch("other", f"http://{server}:8080") == "server"
    assert web.fetch("client", f"http://{server}:8080") == "server"


def test_policies_are_enforced(web: Web, wait_until: WaitUntil) -> None:
    """Allow nothing by default, then egress of one pod, and ingress of another."""
    server, client = web.serve("server"), web.serve("client")
    web.serve("other")
    url = f"http://{server}:8080"
    from_client = {"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}
    may_go = {"matchLabels": {"may": "go"}}
    with web.cluster.enforcing_policies():
        web.apply(
            policy("deny", policyTypes=["Ingress", "Egress"]),
            policy("in", podSelector={"matchLabels": {"app": "server"}}, ingress=[from_client]),
            policy("out", podSelector=may_go, policyTypes=["Egress"], egress=[{}]),
        )
        web.kubectl("label", "pod/other", "may=go")
        wait_until(lambda: web.reaches("client", url), until=partial(eq, False))
        web.kubectl("label", "pod/client", "may=go")
        wait_until(lambda: web.reaches("client", url))
        assert not web.reaches("other", url), "it may go out, and not in there"
        assert not web.reaches("server", f"http://{client}:8080"), "it may not go out"


def policy(name: str, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**kind, "metadata": {"name": name}, "spec": {"podSelector": {}, **spec}}


def test_some_packets_are_lost(web: Web, wait_until: WaitUntil) -> None:
    server, client = web.serve("server"), web.serve("client")
    url = f"http://{server}:8080"

    def dropped_after_a_fetch() -> int:
        web.reaches("client", url)
        rules = web.cluster.in_node("iptables", "-w", "-t", "mangle", "-nvxL", "FORWARD")
        return sum(int(line.split()[0]) for line in rules.splitlines() if "DROP" in line)

    with web.cluster.dropping(client, server, probability=0.3):
        wait_until(dropped_after_a_fetch)
        wait_until(lambda: web.reaches("client", url))


def test_a_partition_from_the_api_server_leaves_dns(web: Web) -> None:
    client = web.serve("client")
    api_server = "https://kubernetes.default"
    with pytest.raises(KubectlError, match="certificate"):  # it answers, and is not believed
        web.fetch("client", api_server)
    with web.cluster.dropping(client, web.cluster.node_ip, port=6443):
        with pytest.raises(KubectlError, match=r"deadline exceeded|Timeout"):
            web.fetch("client", api_server, within="2s")
        with pytest.raises(KubectlError, match="no such host"):
            web.fetch("client", "http://nobody")
    with pytest.raises(KubectlError, match="certificate"):
        web.fetch("client", api_server)


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
@pytest.mark.parametrize("number", [Signals.SIGKILL, Signals.SIGTERM])
def test_pods_outlive_the_control_plane(
    web: Web, part: Part, number: Signals, wait_until: WaitUntil
) -> None:
    url = f"http://{web.serve('server')}:8080"
    before = web.pod("server")
    web.cluster.signal(part, number)
    assert web.cluster.run(small_binary("web"), "get", url) == "server"
    web.cluster.start(part)
    wait_until(lambda: web.pod("server"))
    web.serve("later")
    assert life(web.pod("server")) == life(before)


def test_a_frozen_api_server(web: Web) -> None:
    web.cluster.signal("kube-apiserver", Signals.SIGSTOP)
    with pytest.raises(KubectlError, match=r"(?i)timeout|deadline"):
        web.kubectl("get", "pods", "--request-timeout=1s")
    web.cluster.start("kube-apiserver")
    web.serve("server")


def test_nothing_starts_without_a_kubelet(web: Web) -> None:
    url = f"http://{web.serve('server')}:8080"
    web.cluster.signal("kubelet", Signals.SIGKILL)
    web.apply(pod("later", "serve"))
    web.kubectl("wait", "--for=condition=PodScheduled", "--timeout=300s", "pod/later")
    assert web.cluster.run(small_binary("web"), "get", url) == "server"
    with pytest.raises(KubectlError, match="timed out"):
        web.wait_ready("later", within="5s")  # with a kubelet it takes one
    assert web.pod("later")["status"]["phase"] == "Pending"
    web.cluster.start("kubelet")
    web.wait_ready("later")


def test_up_while_it_is_up_changes_nothing(web: Web) -> None:
    web.serve("server")
    before = web.pod("server")
    web.cluster.up()
    assert life(web.pod("server")) == life(before)


def test_up_repairs(web: Web) -> None:
    web.cluster.signal("etcd", Signals.SIGKILL)
    web.cluster.signal("kube-apiserver", Signals.SIGSTOP)
    web.cluster.signal("kubelet", Signals.SIGSTOP)
    web.cluster.up()
    web.serve("server")


def test_a_command_that_fails_says_why(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"`.*false` ended with 1"):
        cluster.run("false")
    broken = tmp_path / "broken.tar"
    write_archive(broken, "localhost/broken:1", {"/web": b"x"}, ["/web"])
    broken.write_bytes(broken.read_bytes().replace(b'["layer.tar"]', b'["other.tar"]'))
    with pytest.raises(CommandError, match="images import"):
        cluster.load(broken)


def test_down_leaves_nothing(cluster: Cluster, image: None) -> None:
    """Compare the machine before and after; a new cluster is started at the end."""
    cluster.down()
    before = machine()
    cluster.up()
    web = Web(cluster, "default")
    web.apply(service("outside", type="NodePort"), pod("server", "serve"))
    web.wait_ready("server")
    cluster.signal("kubelet", Signals.SIGKILL)
    cluster.signal("kube-apiserver", Signals.SIGSTOP)
    cluster.down()
    assert machine() == before
    cluster.up()
    cluster.kubectl("wait", "--for=create", "--timeout=300s", "serviceaccount/default")


def machine() -> dict[str, object]:
    """Return the settings of the machine that a node without a cell of its own changes.

    The result also describes the cells.
    """
    shown: dict[str, object] = {
        " ".join(command): run(*command)
        for command in (
            ("ip", "-brief", "address"),
            ("ip", "route", "show", "table", "all"),
            ("iptables", "-S"),
            ("iptables", "-t", "nat", "-S"),
            ("iptables", "-t", "mangle", "-S"),
        )
    }
    settings = (*KERNEL_SETTINGS, "net/ipv4/ip_forward")
    shown |= {name: Path("/proc/sys", name).read_text() for name in settings}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    shown["mounts"] = [line for line in mounts if "headrace" in line]
    folders = (*map(Path, HIDDEN_FOLDERS), RUN, kubelet_folder(), *cgroups())
    shown["folders"] = [folder for folder in folders if folder.exists()]
    return shown
