"""Operators as processes of a test, each with the rights that the chart gives and no others."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from cluster.api_server import ApiServer

ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts" / "headrace" / "files" / "operator-rules.yaml"
ACCOUNT = "headrace-operator"
END_WITHIN_S = 10


class Operator:
    """A replica that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    @property
    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text()

    def end(self) -> int:
        """TERM, as a kubelet ends it; its exit code."""
        self.process.terminate()
        return self.process.wait(END_WITHIN_S)


def give_rights(api_server: ApiServer, namespace: str, **without: str) -> None:
    """The operator's account in ``namespace``; ``without`` names resources, each less a verb."""
    rules: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())
    for resource, verb in without.items():
        rules = [
            rule | {"verbs": [v for v in rule["verbs"] if v != verb]}
            if resource in rule["resources"]
            else rule
            for rule in rules
        ]
    rbac = "rbac.authorization.k8s.io"
    named = {"name": ACCOUNT}
    api_server.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": named, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": named,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        },
        namespace=namespace,
    )


@contextmanager
def running_operator(
    api_server: ApiServer, namespace: str, folder: Path, identity: str = "operator-1"
) -> Iterator[Operator]:
    """An operator for one namespace, until the block ends."""
    log = folder / f"{identity}.log"
    command = [sys.executable, "-m", "headrace", "operator", f"--namespace={namespace}"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, f"--identity={identity}", "--port=0"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(api_server.kubeconfig_of(namespace, ACCOUNT))},
        )
        operator = Operator(process, log)
        try:
            yield operator
        finally:
            process.kill()
            process.wait()
