"""Packages the chart and pushes it next to the images, as an OCI artifact, by Helm."""

import ipaddress
import os
import re
import subprocess
from pathlib import Path

from machine import which

from headrace.errors import Fatal
from images.catalogue import ROOT

CHART = ROOT / "charts" / "headrace"
FOLDER = "charts"
"""Below the registry: in the folder of the images, the chart would be the repository of one."""


def find_helm() -> str:
    """Return the path of Helm (``HELM``, else by PATH). Raises Fatal if it is missing."""
    helm = which(os.environ.get("HELM") or "helm")
    if helm is None:
        raise Fatal(
            "nothing was pushed: Helm, which pushes the chart, is not on PATH; install Helm 3, or "
            "say where it is: make push HELM=/somewhere/helm REGISTRY=..."
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
