"""``headrace driver``: one driver process, started by the herder or as a pod."""

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
@click.option("--name", required=True, help="Of the driver; the pod's name.")
@click.option("--link", type=int, help="Standalone: file descriptor of the line to the herder.")
@click.option("--incarnation", default=lambda: uuid.uuid4().hex[:12], help="Standalone: this life.")
@click.option("--lease", type=float, default=6.0, help="Standalone: seconds until it is lost.")
@click.option("--flow", help="As a pod: the ReplicationFlow that it serves.")
@click.option("--namespace", default="default", help="Of the pod and its flow.")
@click.option("--pod-uid", "uid", help="The driver's Lease is deleted with the pod of this uid.")
@click.option("--pod-ip", "ip", default="0.0.0.0", help="Where probes and /metrics are answered.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, help="Where, too.")
@click.option("--rack", envvar="HEADRACE_RACK", default="", help="Where it runs, such as a zone.")
@click.option("--secrets", type=click.Path(path_type=Path), help="Folder of Secrets.")
@click.option(
    "--stop-timeout",
    "stop_timeout_s",
    type=float,
    default=20.0,
    help="Seconds to hand over after TERM, of the pod's grace period.",
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
    """Host the units that are assigned: with --link by a herder, with --flow by the operator."""
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
