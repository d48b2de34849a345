"""Renders the chart by Helm, packages it, and pushes it next to the images as an OCI artifact."""

import ipaddress
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from machine import which

from headrace.errors import Fatal
from images.catalogue import ROOT

CHART = ROOT / "charts" / "headrace"
FOLDER = "charts"
"""Below the registry: in the folder of the images, the chart would be the repository of one."""

_KUBERNETES = "1.32.0"
"""Version for which the chart is rendered without a cluster: the oldest that it accepts."""


def find_helm() -> str:
    """Return the path of Helm (``HELM``, else by PATH). Raises Fatal if it is missing."""
    helm = which(os.environ.get("HELM") or "helm")
    if helm is None:
        raise Fatal(
            "nothing was done: Helm is not on PATH; install Helm 3, or say where it is: make push "
            "HELM=/somewhere/helm REGISTRY=..."
        )
    return helm


def push_chart(helm: str, registry: str, destination: Path = ROOT / "dist") -> str:
    """Package the chart into ``destination``, push it, and return its name with its digest there.

    Login is by Helm (``helm registry login``) or by Docker's configuration.
    """
    packed = _run(helm, "package", str(CHART), f"--destination={destination}")
    package = packed.strip().rpartition(" ")[2]
    target = f"{registry.rstrip('/')}/{FOLDER}"
    flags = ["--plain-http"] if is_loopback(registry) else []
    pushed = _run(helm, "push", package, f"oci://{target}", *flags)
    digest = re.search(r"Digest: (sha256:[0-9a-f]{64})", pushed)
    if digest is None:
        raise Fatal(f"`helm push` printed no digest of {package}: {pushed.strip()}")
    return f"{target}/{CHART.name}@{digest[1]}"


def render_chart(helm: str, namespace: str, repository: str) -> Iterator[dict[str, Any] | None]:
    """Yield the objects of the chart for a namespace, with the image of ``repository``."""
    options = (f"--namespace={namespace}", f"--kube-version={_KUBERNETES}")
    image = f"image.repository={repository}"
    text = _run(helm, "template", CHART.name, str(CHART), *options, "--set", image)
    yield from yaml.safe_load_all(text)


def is_loopback(registry: str) -> bool:
    """Return whether it is on this machine: there HTTP will do, as for Docker's engine."""
    address = registry.partition("/")[0]
    host = address.rpartition(":")[0] or address
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _run(helm: str, *arguments: str) -> str:
    done = subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Fatal(f"helm {arguments[0]} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout + done.stderr
