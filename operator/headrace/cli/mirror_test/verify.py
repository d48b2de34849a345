"""``headrace verify``: runs a mirror test on this machine and gives a verdict."""

import secrets
import socket
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from headrace.api import (
    ClusterAccess,
    Manifest,
    MirrorTest,
    ReplicationFlow,
    Verdict,
    load,
)
from headrace.chaos import refused as cannot_break
from headrace.cli.mirror_test.command_faults import refused as untrusted
from headrace.cli.mirror_test.live_metrics import LiveMetrics
from headrace.cli.mirror_test.mirror_test import run_test
from headrace.cli.mirror_test.summary import summary
from headrace.cli.mirror_test.verify_view import View
from headrace.cli.mirror_test.windows import run_windows
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.manifest_option import manifest_options
from headrace.cli.screen.metrics_options import metrics_options
from headrace.cli.screen.secrets_folder import OF_A_RUN, secrets_folder, secrets_option
from headrace.control import control
from headrace.errors import GaveUp, HeadraceError, InvalidSpec, Retriable
from headrace.kafka import Admin
from headrace.mirror_test import Result, Run, resolve
from headrace.mirror_test.serving import served

_CODES = {
    Verdict.PASSED: Exit.OK,
    Verdict.FAILED: Exit.FAILED,
    Verdict.INCONCLUSIVE: Exit.INCONCLUSIVE,
}


@click.command()
@manifest_options
@click.option("--name", metavar="TEST", help="Name of the MirrorTest, if FILE has several.")
@secrets_option(OF_A_RUN)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for an answer of a cluster, and for the topics of the target to appear "
    "(at least settleSeconds), in seconds.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the report. [default: headrace-reports/<test>/<run>]",
)
@click.option(
    "--run-commands",
    is_flag=True,
    help="Permission to run the commands of spec.chaos (RunCommand).",
)
@metrics_options("/metrics, with kafka-mirror-tester's metrics and those of the last verdict")
def command(  # noqa: PLR0917 - click gives them by name
    files: tuple[Path, ...],
    name: str | None,
    secrets: Path | None,
    timeout: float,
    report: Path | None,
    run_commands: bool,
    metrics_port: int | None,
    metrics_address: str,
) -> int:
    """Run the MirrorTest in FILE against a mirror that runs, and give a verdict.

    With load.durationSeconds: 0, each window gets a verdict, until Ctrl-C or
    `headrace test end-load`. The exit code is that of the worst window.

    The exit code is 0 for Passed, 1 for Failed, and 2 for Inconclusive and for every end without a
    verdict. It is 3 for a usage error, and 4 if the flow of the test does not run here.

    Examples:
      headrace verify test.yaml
      headrace verify -f test.yaml --report reports/today
      headrace verify test.yaml --metrics-port 9405
    """
    try:
        manifest = load(files)
        with secrets_folder(secrets, manifest.secrets) as folder:
            test = _the_test(manifest, files, name, run_commands)
            served_at = None if metrics_port is None else (metrics_address, metrics_port)
            verdict = _verdict(test, folder, timeout, report, served_at)
    except InvalidSpec:
        raise
    except HeadraceError as error:
        raise GaveUp(str(error)) from error
    except KeyboardInterrupt:
        raise GaveUp("interrupted: there is no verdict") from None
    except Exception as error:
        traceback.print_exc()
        # Python's own code for a crash is 1, which would say Failed.
        raise GaveUp(f"headrace itself failed ({error!r}): there is no verdict") from error
    return _CODES[verdict]


def _verdict(
    test: MirrorTest,
    secrets: Path | None,
    timeout_s: float,
    report: Path | None,
    served_at: tuple[str, int] | None,
) -> Verdict:
    live = LiveMetrics(test) if served_at else None

    def verify(one: MirrorTest, folder: Path | None) -> Result:
        return _verify(one, secrets, timeout_s, folder, live)

    with served(*served_at, live.text) if served_at and live else nullcontext() as port:
        if served_at and port:
            click.echo(f"Metrics: http://{served_at[0]}:{port}/metrics", err=True)
        if not test.spec.load.is_endless:
            return verify(test, report).verdict
        folder = report or Path("headrace-reports") / test.metadata.name
        return run_windows(test, verify, folder, live.window_ended if live else lambda _: None)


def _verify(
    test: MirrorTest,
    secrets: Path | None,
    timeout_s: float,
    report: Path | None,
    live: LiveMetrics | None,
) -> Result:
    flow = _flow(test)
    resolved = test if flow is None else resolve(test, flow)
    run = Run(name=_new_name(), test=resolved, secrets=secrets)
    source_id, target_id = (_reach(cluster, timeout_s) for cluster in (run.source, run.target))
    if source_id == target_id:
        raise InvalidSpec(
            f"{run.source.alias} ({run.source.bootstrap_servers}) and {run.target.alias} "
            f"({run.target.bootstrap_servers}) are one cluster (id {source_id}): "
            "a mirror test needs two"
        )
    folder = report or Path("headrace-reports") / test.metadata.name / run.name
    with View(run) as view:
        spec = test.spec  # the resolved one has nothing that is about the flow
        result = run_test(
            run,
            spec.chaos,
            folder,
            timeout_s,
            view,
            rehearsal=spec.rehearsal,
            on_metrics=live.take if live else None,
        )
    click.echo(summary(result, folder / "report.html"))
    return result


def _the_test(
    manifest: Manifest, files: Sequence[Path], name: str | None, run_commands: bool
) -> MirrorTest:
    tests = [test for test in manifest.tests if name in (None, test.metadata.name)]
    if len(tests) != 1:
        names = ", ".join(test.metadata.name for test in manifest.tests) or "none"
        where = ", ".join(map(str, files))
        raise InvalidSpec(f"MirrorTests in {where}: {names}; name one of them with --name")
    test = tests[0]
    refused = [*cannot_break(test.spec.chaos)]
    if not run_commands:
        refused += untrusted(test.spec.chaos)
    if refused:
        mistakes = (manifest.mistake(test, place, sentence) for place, sentence in refused)
        raise InvalidSpec("\n".join(map(str, mistakes)))
    return test


def _flow(test: MirrorTest) -> ReplicationFlow | None:
    """The running flow that the test names; ``InvalidSpec`` when it does not run here."""
    if test.spec.flow_name is None:
        return None
    return ReplicationFlow.model_validate(control.request(test.spec.flow_name, "flow"))


def _new_name() -> str:
    return f"{time.strftime('%y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _reach(cluster: ClusterAccess, timeout_s: float) -> str:
    """The id of a cluster; ``GaveUp`` when no broker answers in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            return Admin(cluster, timeout_s=max(1.0, min(10.0, left_s))).cluster_id()
        except Retriable as error:
            if time.monotonic() > deadline:
                words = f"{error}{_unresolved(cluster)}; gave up after {timeout_s:.0f} s"
                raise GaveUp(words) from error
            time.sleep(0.5)


def _unresolved(cluster: ClusterAccess) -> str:
    """Which hosts of its addresses have no address, as the end of a sentence."""
    hosts = []
    for server in cluster.bootstrap_servers.split(","):
        host = server.strip().rpartition(":")[0].strip("[]")
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            hosts.append(host)
    return f": {', '.join(hosts)} cannot be resolved to an address" if hosts else ""
