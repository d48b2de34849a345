"""Administrator's access to an API server through kubectl."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from cluster.rest import Json


class KubectlError(Exception):
    """Error of kubectl. The message is its output."""


class Kubectl:
    """kubectl with one kubeconfig, and the requests that tests use most."""

    def __init__(self, find_binary: Callable[[], Path], kubeconfig: Path) -> None:
        """Create a kubectl that calls ``find_binary`` when it first needs the program.

        The program of ``cluster_binary`` contains kubectl and takes minutes to build.
        """
        self.kubeconfig = kubeconfig
        """Kubeconfig of the administrator."""
        self._find_binary = find_binary

    @cached_property
    def _binary(self) -> Path:
        return self._find_binary()

    @property
    def own_kubectl(self) -> str:
        """Command of the kubectl that ``kubectl`` runs, for users who have none."""
        return f"{self._binary} kubectl"

    def kubectl(self, *arguments: str, input: str | Json | None = None) -> str:
        """Run kubectl as the administrator and return its output.

        ``input``, text or an object, is its standard input for ``-f -``. Raises KubectlError.
        """
        done = subprocess.run(
            [self._binary, "kubectl", *arguments],
            env={
                **os.environ,
                "KUBECONFIG": str(self.kubeconfig),
                "HOME": str(self.kubeconfig.parent),
            },
            input=input if input is None or isinstance(input, str) else json.dumps(input),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    def apply(self, *manifests: Json, namespace: str = "default") -> None:
        """Run ``kubectl apply`` for these objects, in ``namespace`` if they name none."""
        everything: Json = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.kubectl("apply", "-n", namespace, "-f", "-", input=everything)

    def get(self, *what: str) -> Any:
        """Run ``kubectl get WHAT... -o json``, such as ``get("-n", "mine", "pod", "a")``."""
        return json.loads(self.kubectl("get", *what, "-o", "json"))


def write_kubeconfig(
    path: Path,
    url: str,
    authority: Path | None,
    user: Mapping[str, str],
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig for the API server at ``url``, and return ``path``.

    ``authority`` signed the server's certificate. It is None for a server without TLS.
    """
    cluster = {"server": url}
    if authority is not None:
        cluster["certificate-authority"] = str(authority)
    context = {"cluster": "tests", "user": "me", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "me", "user": dict(user)}],
        "contexts": [{"name": "tests", "context": context}],
        "current-context": "tests",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
