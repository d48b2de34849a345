"""The chart as Helm renders it. Helm is taken from PATH if it is suitable, else built once."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cluster.build import FLAGS, PROXIES
from cluster.program import Module, Program

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "headrace"
OLDEST = (3, 18)
"""Oldest version whose schema errors have the text that tests expect; Helm 4 is not tested."""
REQUIRED = f"--values={Path(__file__).with_suffix('.values.yaml')}"
"""Values without which the chart is not rendered. Arguments after it override them."""
KUBERNETES = "1.37.0"
"""Kubernetes version for which Helm renders; it does not contact an API server."""
HELM = Program(
    "helm",
    "Helm",
    Module(
        Path(__file__).parents[1] / "cluster" / "helm",
        (*FLAGS, "-ldflags=-s -w"),
        "100 MB of downloads and 1 GB of Go's own caches",
    ),
    "helm.sh/helm/v3/cmd/helm",
    2,
    f"{PROXIES}; Helm {'.'.join(map(str, OLDEST))} or a newer 3 on PATH makes it needless",
)


class HelmError(Exception):
    """Helm ended with an error; the message is its output."""


@cache
def helm_binary() -> Path:
    """Return Helm as ``Program.get`` finds it. Raises Fatal if it is not available."""
    return helm_on_path() or HELM.get()


def helm_on_path() -> Path | None:
    """Return Helm on PATH if its version is one that the tests support."""
    if on_path := shutil.which("helm"):
        output = subprocess.run(
            [on_path, "version", "--short"], capture_output=True, text=True, check=False
        ).stdout
        number = re.match(r"v(\d+)\.(\d+)", output)
        if number and OLDEST <= (int(number[1]), int(number[2])) < (4,):
            return Path(on_path)
    return None


def helm(*arguments: str, kubeconfig: Path | None = None) -> str:
    """Run Helm, on the cluster of ``kubeconfig`` if it needs one, and return its output.

    Settings of the user's Helm are ignored. Raises HelmError.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
    if kubeconfig:
        variables |= {"KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)}
    done = subprocess.run(
        [helm_binary(), *arguments], env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HelmError((done.stdout + done.stderr).strip())
    return done.stdout


def render(
    *arguments: str, release: str = "headrace", namespace: str = "kafka"
) -> list[dict[str, Any]]:
    """Return the objects of a release by ``helm template``; arguments are like ``--set a=b``."""
    about = (release, str(CHART), f"--namespace={namespace}", f"--kube-version={KUBERNETES}")
    text = helm("template", *about, REQUIRED, *arguments)
    return [object for object in yaml.safe_load_all(text) if object]
