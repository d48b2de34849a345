"""``headrace driver``: runs a driver process in a pod."""

from pathlib import Path
from typing import Any

import click

from headrace import logs
from headrace.cli.screen.options import log_format_option
from headrace.driver import collect_regularly
from headrace.driver.pod import Pod, run_pod


@click.command(hidden=True)
@click.option(
    "--name", required=True, metavar="DRIVER", help="Name of the driver; in a cluster, of its pod."
)
@click.option("--flow", required=True, metavar="FLOW", help="ReplicationFlow of the pod.")
@click.option(
    "--namespace", default="default", metavar="NAMESPACE", help="Namespace of the pod and its flow."
)
@click.option(
    "--pod-uid", "uid", metavar="UID", help="Uid of the pod, with which its Lease is deleted."
)
@click.option(
    "--pod-ip", "ip", default="0.0.0.0", metavar="ADDRESS", help="Address of probes and /metrics."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8080,
    metavar="PORT",
    help="Port of probes and /metrics.",
)
@click.option(
    "--rack", envvar="HEADRACE_RACK", default="", metavar="RACK", help="Rack or zone of the driver."
)
@click.option(
    "--secrets", type=click.Path(path_type=Path), metavar="DIR", help="Folder of Secrets."
)
@click.option(
    "--stop-timeout",
    "stop_timeout_s",
    type=float,
    default=20.0,
    metavar="SECONDS",
    help="Time for the handover after TERM, of the pod's grace period, in seconds.",
)
@log_format_option
def command(*, log_format: str, **pod: Any) -> None:
    """Run the units that the operator assigns to this pod."""
    logs.configure(format=log_format)
    logs.follow_signals()
    collect_regularly()
    run_pod(Pod(**pod))
