"""The programs that the tests' cluster runs: Kubernetes and etcd."""

import re
from pathlib import Path
from typing import Literal

from cluster.program import Program
from rich.console import Console

SOURCES = Path(__file__).parent / "binary"


def cluster_binary(console: Console | None = None) -> Path:
    """The program, as ``Program.get`` has it."""
    return Program(
        "cluster",
        "the tests' API server",
        SOURCES,
        ".",
        _flags(),
        "The tests run a real Kubernetes API server. It is compiled here, from its Go modules: "
        "some 5 minutes, 1 GB of downloads and 4 GB of Go's own caches, once.",
        "It needs Go's modules (GOPROXY and the proxy variables of the environment say from "
        "where) and 6 GB of disk; `make check` runs the tests that need no API server",
    ).get(console)


def node_binary(console: Console | None = None) -> Path:
    """kubelet, scheduler, kube-proxy and DNS, as ``Program.get`` has them."""
    return Program(
        "node",
        "the tests' Kubernetes node",
        SOURCES,
        "./node",
        _flags(),
        "The tests' cluster runs a real node: kubelet, scheduler, kube-proxy. It is compiled here, "
        "from Go modules: some 3 minutes, 0.2 GB of downloads, once.",
        "It needs Go's modules (GOPROXY and the proxy variables of the environment say from "
        "where) and 6 GB of disk; `make test` runs the tests that need no node",
    ).get(console)


def kind_binary(console: Console | None = None) -> Path:
    """kind, as ``Program.get`` has it."""
    return Program(
        "kind",
        "kind",
        Path(__file__).parent / "kind",
        "sigs.k8s.io/kind",
        ("-trimpath", "-buildvcs=false", "-ldflags=-s -w"),
        "The tests' cluster is made by kind. It is compiled here, from Go modules: some seconds, "
        "10 MB of downloads, once.",
        "It needs Go's modules (GOPROXY and the proxy variables of the environment say from "
        "where); kind on PATH makes it needless",
    ).get(console)


def small_binary(name: Literal["pause", "web"], console: Console | None = None) -> Path:
    """A program that runs in pods, as ``Program.get`` has it."""
    return Program(
        name,
        f"the program {name}",
        SOURCES,
        f"./{name}",
        ("-trimpath", "-buildvcs=false", "-ldflags=-s -w"),
        f"The program {name} runs in pods of the tests. It is compiled here, in seconds, once.",
        "It needs Go alone",
    ).get(console)


def _flags() -> tuple[str, ...]:
    """Flags of ``go build``: a small program that says the version it was made of."""
    kubernetes = re.search(r"(?m)^\s+k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    assert kubernetes
    major, minor = kubernetes[1].removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    facts = {"gitVersion": kubernetes[1], "gitMajor": major, "gitMinor": minor}
    said = " ".join(f"-X {package}.{name}={value}" for name, value in facts.items())
    # grpcnotrace: with gRPC's tracing, Go's linker keeps every method of every type.
    return "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", f"-ldflags=-s -w {said}"
