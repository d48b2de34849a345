"""Interface of a real Kubernetes cluster of one node for the tests."""

import subprocess
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from signal import Signals
from typing import Any, Literal

from cluster.kubectl import Kubectl
from cluster.program import Program

from headrace.errors import HeadraceError

Part = Literal[
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"
]
"""Component that a test may make fail."""


class CommandError(HeadraceError):
    """Error of a command in the cluster. The message is its output."""


class Cluster(Kubectl):
    """Cluster of the machine, which outlives the process that started it.

    Its images are those brought by ``load`` (``imagePullPolicy`` is Never or IfNotPresent).
    """

    @property
    @abstractmethod
    def programs(self) -> tuple[Program, ...]:
        """Programs that the cluster needs compiled. ``up`` builds them."""

    @abstractmethod
    def up(self) -> None:
        """Create the cluster, or repair what a test left broken.

        Returns at once if nothing is to be done. Prints what it does and what it waits for. Raises
        Fatal or GaveUp if it fails.
        """

    @abstractmethod
    def down(self) -> None:
        """Remove the cluster except for cached files."""

    @abstractmethod
    def status(self) -> str:
        """Return a sentence on whether the cluster is up and which of its parts do not run."""

    @abstractmethod
    def load(self, archive: Path) -> None:
        """Bring the images of a docker-archive (``docker save``, ``buildah push``) to the node.

        Images that the node already has are left unchanged. Raises CommandError, or OSError for the
        file.
        """

    @abstractmethod
    def audit_log(self) -> str:
        """Return the requests of ServiceAccounts since the cluster was created.

        Raises OSError or CommandError for a cluster that was created without an audit log.
        """

    def pods(self, namespace: str, labels: str) -> dict[str, Any]:
        """Return pods that have these labels, by name."""
        found = self.get("-n", namespace, "pods", "-l", labels)["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    # Failures of its components.

    @abstractmethod
    def signal(self, part: Part, number: Signals) -> None:
        """Send a signal to a component, and wait for its end after TERM and KILL.

        It stays ended or frozen until ``start``. If it is a pod (kind), its kubelet starts it.
        """

    @abstractmethod
    def start(self, part: Part) -> None:
        """Start or thaw a component, and wait until it is ready."""

    def signal_container(
        self, namespace: str, pod: str, number: Signals, container: str | None = None
    ) -> None:
        """Send a signal to the first process of a container, by default the pod's first."""
        statuses = self.get("-n", namespace, "pod", pod)["status"]["containerStatuses"]
        found = [status for status in statuses if container in (None, status["name"])]
        id = found[0]["containerID"].removeprefix("containerd://")
        self.in_node("ctr", "-n", "k8s.io", "task", "kill", f"--signal={number.name}", id)

    @contextmanager
    def dropping(
        self, one: str, other: str, *, port: int | None = None, probability: float = 1.0
    ) -> Iterator[None]:
        """Lose packets between two addresses, both ways, while the ``with`` block lasts.

        Addresses are addresses of pods or of the node (``node_ip``, which is also the API
        server's), not of Services. ``port`` is a TCP port of ``other``. Each packet is lost with
        ``probability``.
        """
        with ExitStack() as rules:
            for rule in _rules(one, other, port, probability):
                self.in_node("iptables", "-w", "-t", "mangle", "-A", *rule)
                rules.callback(self.in_node, "iptables", "-w", "-t", "mangle", "-D", *rule)
            yield

    @abstractmethod
    def enforcing_policies(self) -> AbstractContextManager[None]:
        """Enforce NetworkPolicies within the ``with`` block, for a new pod after a second.

        Established connections persist. A policy of kind's own network is always in force.
        """

    # Networks and hosts of commands.

    @property
    @abstractmethod
    def network(self) -> Path:
        """Path of the node's network namespace."""

    @abstractmethod
    def in_node(self, *command: str | Path) -> str:
        """Run a program of the node on the node, and return its output.

        Raises CommandError.
        """

    def in_network(self, *command: str | Path) -> list[str | Path]:
        """Return the command line that runs a program of this machine in the node's network.

        Pods and Services can be reached there, the machine's own servers cannot. Needs root.
        """
        return ["nsenter", f"--net={self.network}", "--", *command]

    def run(self, *command: str | Path) -> str:
        """Run a program of this machine in the node's network, and return its output.

        Raises CommandError.
        """
        return run(*self.in_network(*command))

    @property
    def node_ip(self) -> str:
        """Address of the node, at which pods reach programs that listen in the node's network."""
        addresses = self.get("nodes")["items"][0]["status"]["addresses"]
        return str(next(one["address"] for one in addresses if one["type"] == "InternalIP"))


def run(*command: str | Path) -> str:
    """Return the output of a command.

    Raises CommandError.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CommandError(f"`{command[0]}` cannot be run: {error.strerror}") from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise CommandError(
            f"`{' '.join(map(str, command))}` ended with {done.returncode}: {output}"
        )
    return done.stdout


def _rules(one: str, other: str, port: int | None, probability: float) -> list[list[str]]:
    """Return the rules of iptables, in chains that precede Kubernetes' own rules."""
    chance = ["-m", "statistic", "--mode", "random", "--probability", str(probability)]
    end = [*(chance if probability < 1 else ()), "-j", "DROP"]
    there = ["-p", "tcp", "--dport", str(port)] if port else []
    back = ["-p", "tcp", "--sport", str(port)] if port else []
    return [
        rule
        for chain in ("INPUT", "FORWARD", "OUTPUT")
        for rule in (
            [chain, "-s", one, "-d", other, *there, *end],
            [chain, "-s", other, "-d", one, *back, *end],
        )
    ]
