"""Cluster for machines with a Docker engine: kind."""

import json
import shutil
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from signal import Signals
from typing import get_args

from cluster.audit import audit_flags, write_policy
from cluster.build import CLUSTER, KIND, cluster_binary
from cluster.component import POLL_INTERVAL_S, START_TIMEOUT_S
from cluster.kubectl import KubectlError
from cluster.program import Program, have_programs
from cluster.real import Cluster, CommandError, Part, run
from progress import progress
from rich.console import Console

from headrace.errors import GaveUp
from headrace.host import cache_home

NAME = "headrace"
NODE = f"{NAME}-control-plane"
"""Name that kind gives to the container of the node."""
IMAGE = (
    "kindest/node:v1.34.0@sha256:7416a61b42b1662ca6ca89f02028ac133a309a2a30ba309614e8ec94d976dc5a"
)


AUDIT_POLICY, AUDIT_LOG = "/etc/kubernetes/audit/policy.yaml", "/var/log/kubernetes/audit.log"
"""Files of the node that the API server's container also has."""


class Kind(Cluster):
    """Cluster whose node is a container."""

    def __init__(self, docker: str, console: Console) -> None:
        super().__init__(lambda: cluster_binary(console), cache_home() / "kind" / "kubeconfig")
        self._docker = docker
        self._console = console

    @cached_property
    def _kind(self) -> Path:
        on_path = shutil.which("kind")
        return Path(on_path) if on_path else KIND.get(self._console)

    @property
    def programs(self) -> tuple[Program, ...]:
        return (CLUSTER,) if shutil.which("kind") else (CLUSTER, KIND)

    def up(self) -> None:
        have_programs(self.programs, self._console)
        kubeconfig = f"--kubeconfig={self.kubeconfig}"
        if not self._is_there():
            self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
            with progress(self._console, f"kind: a cluster of {IMAGE}, which Docker fetches"):
                create = ("create", "cluster", f"--name={NAME}", f"--image={IMAGE}")
                config = f"--config={write_config(self.kubeconfig.parent)}"
                run(self._kind, *create, config, "--wait=120s", kubeconfig)
        else:
            run(self._kind, "export", "kubeconfig", f"--name={NAME}", kubeconfig)
        for part in get_args(Part):
            self.start(part)

    def down(self) -> None:
        run(self._kind, "delete", "cluster", f"--name={NAME}", f"--kubeconfig={self.kubeconfig}")

    def status(self) -> str:
        if not self._is_there():
            return "The cluster is down: `make cluster-up` starts it."
        return f"The cluster is up, by kind: KUBECONFIG={self.kubeconfig}"

    def load(self, archive: Path) -> None:
        run(self._kind, "load", "image-archive", archive, f"--name={NAME}")

    def signal(self, part: Part, number: Signals) -> None:
        if part == "kubelet" and number in (Signals.SIGTERM, Signals.SIGKILL):
            self.in_node("systemctl", "kill", f"--signal={number.name}", "kubelet")
            self.in_node("systemctl", "stop", "kubelet")  # otherwise systemd starts it again
        else:
            self.in_node("pkill", f"-{number.value}", "--full", f"^(/usr/bin/)?{part} ")

    def start(self, part: Part) -> None:
        with suppress(CommandError):  # it has ended: the kubelet starts it again
            self.signal(part, Signals.SIGCONT)
        if part == "kubelet":
            self.in_node("systemctl", "start", "kubelet")
        self._wait_until_ready()

    def enforcing_policies(self) -> AbstractContextManager[None]:
        return nullcontext()

    def audit_log(self) -> str:
        return self.in_node("cat", AUDIT_LOG)

    @property
    def network(self) -> Path:
        pid = run(self._docker, "inspect", "--format={{.State.Pid}}", NODE).strip()
        return Path(f"/proc/{pid}/ns/net")

    def in_node(self, *command: str | Path) -> str:
        return run(self._docker, "exec", NODE, *command)

    def _is_there(self) -> bool:
        return NAME in run(self._kind, "get", "clusters").split()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        ready = ("wait", "--for=condition=Ready", "--timeout=1s", "nodes", "--all")
        while True:
            try:
                self.kubectl("get", "--raw", "/readyz")
                self.kubectl(*ready)
            except KubectlError as error:
                if time.monotonic() > deadline:
                    raise GaveUp(
                        f"{NAME} is not ready after {START_TIMEOUT_S} s: {error}"
                    ) from error
                time.sleep(POLL_INTERVAL_S)
            else:
                return


def write_config(folder: Path) -> Path:
    """Write kind's configuration of a cluster with an audit log, and return its path."""
    policy, config = folder / "audit.yaml", folder / "config.yaml"
    write_policy(policy)
    mounted = [Path(AUDIT_POLICY).parent, Path(AUDIT_LOG).parent]
    flags = [flag.removeprefix("--") for flag in audit_flags(AUDIT_POLICY, AUDIT_LOG)]
    of_kubeadm = {
        "kind": "ClusterConfiguration",
        "apiServer": {
            "extraArgs": dict(flag.split("=", 1) for flag in flags),
            "extraVolumes": [
                {
                    "name": f"audit-{number}",
                    "hostPath": str(path),
                    "mountPath": str(path),
                    "pathType": "DirectoryOrCreate",
                }
                for number, path in enumerate(mounted)
            ],
        },
    }
    node = {
        "role": "control-plane",
        "kubeadmConfigPatches": [json.dumps(of_kubeadm)],
        "extraMounts": [{"hostPath": str(policy), "containerPath": AUDIT_POLICY, "readOnly": True}],
    }
    kind = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]}
    config.write_text(json.dumps(kind))  # JSON is YAML
    return config
