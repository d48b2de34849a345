"""``headrace operator``: reconciles the objects of a Kubernetes cluster."""

import asyncio
import os
import socket

import click

from headrace import __version__, logs
from headrace.cli.log_options import follow_signal, log_format_option
from headrace.controller import LEASE, ChaosRole, Images, OperatorOptions, Settings, run_operator


@click.command()
@click.option("--namespace", help="Whose flows and mirror tests.")
@click.option("--all-namespaces", is_flag=True, help="Those of all namespaces.")
@click.option(
    "--identity",
    default=lambda: os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
    show_default="$POD_NAME, else host and process",
    help="Name of this replica.",
)
@click.option(
    "--lease-namespace",
    default=lambda: os.environ.get("POD_NAMESPACE"),
    show_default="$POD_NAMESPACE, else --namespace, else default",
    help="Where the Lease lies by which one of the replicas leads.",
)
@click.option("--lease", default=LEASE, show_default=True, help="Name of that Lease.")
@click.option("--pod-ip", "ip", show_default="all addresses", help="Where the port below answers.")
@click.option(
    "--port", default=8080, show_default=True, help="Of /healthz, /readyz and /metrics; 0: any."
)
@click.option(
    "--driver-image",
    default=f"headrace:{__version__}",
    show_default=True,
    envvar="HEADRACE_DRIVER_IMAGE",
    help="Image of the drivers, and of the Jobs that carry out spec.chaos.",
)
@click.option(
    "--spark-image",
    default=f"headrace-spark:{__version__}",
    show_default=True,
    envvar="HEADRACE_SPARK_IMAGE",
    help="Image of the MirrorTests' Spark jobs.",
)
@click.option(
    "--network-policy", is_flag=True, help="Make a NetworkPolicy for each flow's drivers."
)
@click.option(
    "--chaos-role",
    help="Role of the Jobs that carry out spec.chaos: a ClusterRole; with --namespace a Role "
    "there. [default: tests with spec.chaos are refused]",
)
@log_format_option
def command(
    *,
    namespace: str | None,
    all_namespaces: bool,
    identity: str,
    lease_namespace: str | None,
    lease: str,
    ip: str | None,
    port: int,
    driver_image: str,
    spark_image: str,
    network_policy: bool,
    chaos_role: str | None,
    log_format: str,
) -> None:
    """Reconcile flows and mirror tests. Finds the API server by KUBECONFIG, else as a pod."""
    if (namespace is None) is not all_namespaces:
        raise click.UsageError("give one of --namespace NAME and --all-namespaces")
    logs.configure(format=log_format)
    follow_signal()
    options = OperatorOptions(
        identity=identity,
        namespace=namespace,
        lease_namespace=lease_namespace or namespace or "default",
        lease=lease,
        ip=ip,
        port=port,
        flows=Settings(driver_image=driver_image, network_policy=network_policy),
        tests=Images(spark_image, driver_image),
        chaos_role=ChaosRole("Role" if namespace else "ClusterRole", chaos_role)
        if chaos_role
        else None,
    )
    asyncio.run(run_operator(options))
