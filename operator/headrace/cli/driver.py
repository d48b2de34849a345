"""``headrace driver``: a driver process, which a run or a pod starts."""

import faulthandler
import socket
import uuid
from pathlib import Path
from typing import Any

import click

from headrace import logs
from headrace.cli.screen.log_options import follow_signal, log_format_option
from headrace.connect import DriverIdentity
from headrace.driver import collect_regularly, run_driver


@click.command(hidden=True)
@click.option(
    "--name", required=True, metavar="DRIVER", help="Name of the driver; in a cluster, of its pod."
)
@click.option(
    "--link", type=int, metavar="FD", help="File descriptor of the socket to the run (standalone)."
)
@click.option(
    "--incarnation",
    default=lambda: uuid.uuid4().hex[:12],
    metavar="ID",
    help="Id of this start (standalone).",
)
@click.option(
    "--lease",
    type=float,
    default=6.0,
    metavar="SECONDS",
    help="Time until the driver counts as lost (standalone).",
)
@click.option("--flow", metavar="FLOW", help="ReplicationFlow of the pod.")
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
def command(
    *,
    name: str,
    link: int | None,
    incarnation: str,
    lease: float,
    secrets: Path | None,
    rack: str,
    log_format: str,
    **pod: Any,
) -> None:
    """Run the units that are assigned to this driver.

    With --link a run assigns them, with --flow the operator.
    """
    logs.configure(format=log_format)
    follow_signal()
    faulthandler.enable(2)  # a client library that aborts leaves the threads' stacks in the log
    if (link is None) == (pod["flow"] is None):
        raise click.UsageError("give one of --link (standalone) and --flow (as a pod)")
    collect_regularly()
    if link is None:
        from headrace.driver.pod import Pod, run_pod  # noqa: PLC0415 - not installed standalone

        run_pod(Pod(name=name, secrets=secrets, rack=rack, **pod))
    else:
        with socket.socket(fileno=link) as line:
            run_driver(line, DriverIdentity(name, incarnation, rack), lease, secrets)
