"""``headrace operator``: reconciles flows and mirror tests of a Kubernetes cluster."""

import asyncio
import os
import socket
from typing import TypeVar

import click
from pydantic import ValidationError

from headrace import __version__, logs
from headrace.api import Model
from headrace.cli.screen.options import log_format_option
from headrace.controller import (
    OPERATOR_LEASE,
    DriverDefaults,
    FixedRole,
    FlowSettings,
    Images,
    OperatorOptions,
    SparkDefaults,
    TestSettings,
    check_operator,
    run_operator,
)

_Defaults = TypeVar("_Defaults", bound=Model)


@click.command()
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Namespace to serve. Repeatable.",
)
@click.option("--all-namespaces", is_flag=True, help="All namespaces.")
@click.option(
    "--selector",
    default="",
    metavar="SELECTOR",
    help="Labels of the flows and mirror tests to reconcile, as for kubectl -l. It lets two "
    "operators share a cluster. [default: all]",
)
@click.option(
    "--identity",
    default=lambda: os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
    show_default="$POD_NAME, else host and process",
    metavar="NAME",
    help="Name of this replica.",
)
@click.option(
    "--lease-namespace",
    default=lambda: os.environ.get("POD_NAMESPACE"),
    show_default="$POD_NAMESPACE, else the first --namespace, else default",
    metavar="NAMESPACE",
    help="Namespace of the Lease of the leader.",
)
@click.option(
    "--lease", default=OPERATOR_LEASE, show_default=True, metavar="NAME", help="Name of the Lease."
)
@click.option(
    "--pod-ip",
    "ip",
    show_default="all addresses",
    metavar="ADDRESS",
    help="Address of /healthz, /readyz and /metrics.",
)
@click.option(
    "--port",
    default=8080,
    show_default=True,
    metavar="PORT",
    help="Port of /healthz, /readyz and /metrics; 0 for any free port.",
)
@click.option(
    "--driver-image",
    default=f"headrace:{__version__}",
    show_default=True,
    envvar="HEADRACE_DRIVER_IMAGE",
    metavar="IMAGE",
    help="Image of the drivers, and of the Jobs of spec.chaos and spec.rehearsal.",
)
@click.option(
    "--spark-image",
    default=f"headrace-spark:{__version__}",
    show_default=True,
    envvar="HEADRACE_SPARK_IMAGE",
    metavar="IMAGE",
    help="Image of the MirrorTests' Spark jobs.",
)
@click.option(
    "--max-concurrent-rollouts",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="NUMBER",
    help="Number of flows that may replace their drivers at a time; 0 for all.",
)
@click.option(
    "--driver-defaults",
    default="{}",
    metavar="JSON",
    help="Resources, env and podTemplate of all drivers, as in spec.drivers of a flow, which "
    "overrides them. [default: none]",
)
@click.option(
    "--spark-defaults",
    default="{}",
    metavar="JSON",
    help="Defaults of imagePullPolicy, driver and executor of all mirror tests, as in spec.spark "
    "of a test, and their podTemplate; a test overrides them. [default: none]",
)
@click.option("--network-policy", is_flag=True, help="NetworkPolicy for each flow's drivers.")
@click.option(
    "--driver-role",
    metavar="ROLE",
    help="Role of all drivers: a ClusterRole; with --namespace a Role there. [default: one for "
    "each flow, with permissions of the operator]",
)
@click.option(
    "--chaos-role",
    metavar="ROLE",
    help="Role of the Jobs that carry out spec.chaos: a ClusterRole; with --namespace a Role "
    "there. [default: tests with spec.chaos are refused]",
)
@click.option(
    "--rehearsal-role",
    metavar="ROLE",
    help="Role of the Jobs that carry out spec.rehearsal, like --chaos-role. [default: tests with "
    "spec.rehearsal are refused]",
)
@click.option(
    "--executor-role",
    metavar="ROLE",
    help="Role of the mirror tests' Spark drivers, which create executors: a ClusterRole; with "
    "--namespace a Role there. [default: one for each test, with permissions of the operator]",
)
@click.option(
    "--no-mirror-tests",
    is_flag=True,
    help="No mirror tests; permissions on them, on Jobs and on ConfigMaps are not needed.",
)
@click.option(
    "--no-custom-spark-image",
    is_flag=True,
    help="Refusal of mirror tests with spec.spark.image.",
)
@click.option(
    "--test-network-policy",
    is_flag=True,
    help="NetworkPolicy for each mirror test's pods of Spark.",
)
@click.option(
    "--refuse-tests-in",
    metavar="NAMESPACE",
    help="Namespace whose mirror tests are refused: the operator's own, where a pod could use the "
    "operator's token.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check only whether an operator with these options leads and sees its objects.",
)
@log_format_option
def command(
    *,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    identity: str,
    lease_namespace: str | None,
    lease: str,
    ip: str | None,
    port: int,
    driver_image: str,
    spark_image: str,
    max_concurrent_rollouts: int,
    driver_defaults: str,
    spark_defaults: str,
    network_policy: bool,
    driver_role: str | None,
    chaos_role: str | None,
    rehearsal_role: str | None,
    executor_role: str | None,
    no_mirror_tests: bool,
    no_custom_spark_image: bool,
    test_network_policy: bool,
    refuse_tests_in: str | None,
    check: bool,
    log_format: str,
) -> None:
    """Reconcile flows and mirror tests of a Kubernetes cluster.

    The API server is found by KUBECONFIG, or in a pod by its ServiceAccount. The Helm chart starts
    this command.
    """
    if bool(namespaces) is all_namespaces:
        raise click.UsageError("give one of --namespace NAME and --all-namespaces")
    logs.configure(format=log_format)
    logs.follow_signals()
    drivers = _defaults("--driver-defaults", DriverDefaults, driver_defaults)
    options = OperatorOptions(
        identity=identity,
        namespaces=tuple(dict.fromkeys(namespaces)),
        selector=selector,
        lease_namespace=lease_namespace or next(iter(namespaces), "default"),
        lease=lease,
        ip=ip,
        port=port,
        flows=FlowSettings(
            driver_image=driver_image,
            network_policy=network_policy,
            driver_defaults=drivers,
            chaos=chaos_role is not None,
            driver_role=_role(driver_role, everywhere=all_namespaces),
        ),
        max_concurrent_rollouts=max_concurrent_rollouts,
        tests=None
        if no_mirror_tests
        else TestSettings(
            Images(spark_image, driver_image, drivers.image_pull_policy or "IfNotPresent"),
            _role(chaos_role, everywhere=all_namespaces),
            _role(rehearsal_role, everywhere=all_namespaces),
            _role(executor_role, everywhere=all_namespaces),
            defaults=_defaults("--spark-defaults", SparkDefaults, spark_defaults),
            custom_images=not no_custom_spark_image,
            network_policy=test_network_policy,
            log_format=log_format,
            refused_namespace=refuse_tests_in,
        ),
    )
    if check:
        click.echo(asyncio.run(check_operator(options)))
        return
    asyncio.run(run_operator(options))


def _role(name: str | None, *, everywhere: bool) -> FixedRole | None:
    return FixedRole("ClusterRole" if everywhere else "Role", name) if name else None


def _defaults(option: str, kind: type[_Defaults], text: str) -> _Defaults:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        (first, *_) = error.errors()
        where = ".".join(map(str, first["loc"]))
        raise click.UsageError(f"{option}: {where}: {first['msg']}") from None
