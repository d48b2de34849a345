"""Selection of the real cluster that this machine can run."""

from cluster.kind.docker import Kind
from cluster.node.single import SingleNode
from cluster.real import Cluster
from machine import answering_docker
from rich.console import Console


def real_cluster(console: Console | None = None) -> Cluster:
    """Return a cluster that is not started: kind if a Docker engine answers, or a local node.

    Raises Fatal if neither is possible.
    """
    console = console or Console(stderr=True)
    docker = answering_docker()
    return Kind(docker, console) if docker else SingleNode(console)
