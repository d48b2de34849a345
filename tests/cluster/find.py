"""Which real cluster this machine can have."""

from cluster.kind.docker import Kind
from cluster.node.single import SingleNode
from cluster.real import Cluster
from machine import answering_docker
from rich.console import Console


def real_cluster(console: Console | None = None) -> Cluster:
    """kind where a Docker engine answers, else a node of our own; not started yet.

    Raises Fatal when there can be neither.
    """
    console = console or Console(stderr=True)
    docker = answering_docker()
    return Kind(docker, console) if docker else SingleNode(console)
