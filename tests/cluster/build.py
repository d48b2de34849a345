"""Programs that the tests compile: Kubernetes, etcd, and small ones that run in pods."""

import re
from pathlib import Path
from typing import Literal

from cluster.program import Module, Program
from rich.console import Console

SOURCES = Path(__file__).parent / "binary"
FLAGS = ("-trimpath", "-buildvcs=false")
"""Flags of every ``go build``."""
PROXIES = (
    "It needs Go's modules (GOPROXY and the proxy variables of the environment say from where)"
)


def _kubernetes_flags() -> tuple[str, ...]:
    """Return the flags of ``go build`` that shrink the program and set its Kubernetes version."""
    kubernetes = re.search(r"(?m)^\s+k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    assert kubernetes
    major, minor = kubernetes[1].removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    facts = {"gitVersion": kubernetes[1], "gitMajor": major, "gitMinor": minor}
    variables = " ".join(f"-X {package}.{name}={value}" for name, value in facts.items())
    return (
        *FLAGS,
        # With gRPC's tracing, Go's linker retains every method of every type.
        "-tags=grpcnotrace",
        f"-ldflags=-s -w {variables}",
    )


MODULE = Module(
    SOURCES,
    _kubernetes_flags(),
    "1 GB of downloads and 4 GB of Go's own caches",
)
ADVICE = f"{PROXIES} and 6 GB of disk; `make check` runs the tests that need no API server"
CLUSTER = Program("cluster", "the tests' API server", MODULE, ".", 4, ADVICE)
"""etcd, kube-apiserver, kube-controller-manager and kubectl."""
NODE = Program("node", "the tests' Kubernetes node", MODULE, "./node", 1, ADVICE)
"""kubelet, scheduler, kube-proxy and DNS."""
PAUSE = Program("pause", "the program pause", MODULE, "./pause", 0, ADVICE)
WEB = Program("web", "the program web", MODULE, "./web", 0, ADVICE)
KIND = Program(
    "kind",
    "kind",
    Module(
        Path(__file__).parent / "kind",
        (*FLAGS, "-ldflags=-s -w"),
        "10 MB of downloads",
    ),
    "sigs.k8s.io/kind",
    0.5,
    f"{PROXIES}; kind on PATH makes it needless",
)


def cluster_binary(console: Console | None = None) -> Path:
    """Return the cluster's program, built first if it is missing."""
    return CLUSTER.get(console)


def small_binary(name: Literal["pause", "web"], console: Console | None = None) -> Path:
    """Return a program that runs in pods, built first if it is missing."""
    return {"pause": PAUSE, "web": WEB}[name].get(console)
