"""``headrace verify`` and ``headrace test compare``: run mirror tests and compare reports."""

import secrets
import shutil
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from headrace.api import (
    ClusterAccess,
    Manifest,
    MirrorTest,
    ReplicationFlow,
    Verdict,
    load,
)
from headrace.chaos import refused as cannot_break
from headrace.cli.mirror_test.audit_checks import check_topics, wait_until_current
from headrace.cli.mirror_test.local_faults import refused as untrusted
from headrace.cli.mirror_test.local_run import run_test
from headrace.cli.mirror_test.outputs import ReportOutputs, output_options
from headrace.cli.mirror_test.progress import LiveMetrics, VerifyProgress, summary
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.manifest_option import manifest_options
from headrace.cli.screen.options import OF_A_RUN, metrics_options, secrets_folder, secrets_option
from headrace.control import control
from headrace.errors import GaveUp, HeadraceError, InvalidSpec, Retriable
from headrace.kafka import Admin
from headrace.mirror_test import (
    MirrorTestRun,
    Result,
    documents,
    resolve,
    window_of,
)
from headrace.mirror_test.serving import served
from headrace.report.pages import SideBySide, side_by_side, side_by_side_page

_WORST_FIRST = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED)
_RETRY_S = 10.0
"""Interval after a window that could not be judged, in seconds."""

OnVerdict = Callable[[Result], None]


def run_windows(
    test: MirrorTest,
    verify: Callable[[MirrorTest, Path], Result],
    folder: Path,
    on_verdict: OnVerdict,
    retry_s: float = _RETRY_S,
) -> Verdict:
    """Judge windows until a user interrupts or ends the load, and return the worst verdict.

    Each window has a folder below ``folder``, and the history limits of the test say how many
    folders are kept. If the first window ends with an error, raise the error. If a later window
    ends with an error, it counts as Inconclusive, and the next window begins. Raise ``GaveUp`` if a
    user interrupts before the first window has ended.
    """
    window, found = window_of(test), Counter[Verdict]()
    kept: dict[bool, list[Path]] = {True: [], False: []}
    spec = test.spec
    limits = {True: spec.successful_tests_history_limit, False: spec.failed_tests_history_limit}
    try:
        while True:
            at = folder / f"{datetime.now(UTC):%y%m%d-%H%M%S}-{found.total() + 1}"
            verdict = Verdict.INCONCLUSIVE
            try:
                result = verify(window, at)
                verdict = result.verdict
                on_verdict(result)
            except HeadraceError as error:
                if not found:
                    raise
                click.echo(f"Inconclusive: {error}")
                time.sleep(retry_s)
            found[verdict] += 1
            click.echo(f"windows: {_words(found)}")
            passed = verdict is Verdict.PASSED
            kept[passed].append(at)
            while len(kept[passed]) > limits[passed]:
                shutil.rmtree(kept[passed].pop(0), ignore_errors=True)
            if (at / documents.END_LOAD).exists():
                break
    except KeyboardInterrupt:
        if not found:
            raise GaveUp("interrupted before the end of a window: there is no verdict") from None
    return next(verdict for verdict in _WORST_FIRST if found[verdict])


def _words(found: Counter[Verdict]) -> str:
    return ", ".join(f"{found[verdict]:,} {verdict}" for verdict in reversed(_WORST_FIRST))


_CODES = {
    Verdict.PASSED: Exit.OK,
    Verdict.FAILED: Exit.FAILED,
    Verdict.INCONCLUSIVE: Exit.INCONCLUSIVE,
}


timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for an answer of a cluster, and for the topics of the target to appear "
    "(at least settleSeconds), in seconds.",
)


@click.command()
@manifest_options
@click.option("--name", metavar="TEST", help="Name of the MirrorTest, if FILE has several.")
@secrets_option(OF_A_RUN)
@timeout_option
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
@output_options
@metrics_options("/metrics, with metrics of kafka-mirror-tester and of the last verdict")
def command(  # noqa: PLR0917 - click gives them by name
    files: tuple[Path, ...],
    name: str | None,
    secrets: Path | None,
    timeout: float,
    report: Path | None,
    run_commands: bool,
    outputs: ReportOutputs,
    metrics_port: int | None,
    metrics_address: str,
) -> int:
    """Run the MirrorTest in FILE against a mirror that runs, and give a verdict.

    With spec.audit, it compares the records that applications wrote, and sends nothing.

    With load.durationSeconds: 0, each window gets a verdict, until Ctrl-C or
    `headrace test end-load`. The exit code is the code of the worst window.

    The exit code is 0 for Passed, 1 for Failed, and 2 for Inconclusive and for every end without a
    verdict. It is 3 for a usage error, and 4 if the flow of the test does not run here.

    Examples:
      headrace verify test.yaml
      headrace verify -f test.yaml --report reports/today
      headrace verify test.yaml --metrics-port 9405
      headrace verify audit.yaml --junit junit.xml
    """
    with verdict_or_sentence(outputs):
        manifest = load(files)
        with secrets_folder(secrets, manifest.secrets) as folder:
            test = _the_test(manifest, files, name, run_commands)
            served_at = None if metrics_port is None else (metrics_address, metrics_port)
            return verdict_code(test, folder, timeout, report, served_at, outputs=outputs)


@contextmanager
def verdict_or_sentence(outputs: ReportOutputs) -> Iterator[None]:
    """Raise an error for every end without a verdict, and write the error to the JUnit file."""
    try:
        yield
    except InvalidSpec as error:
        outputs.without_verdict(error)
        raise
    except HeadraceError as error:
        raise outputs.without_verdict(GaveUp(str(error))) from error
    except KeyboardInterrupt:
        interrupted = GaveUp("interrupted: there is no verdict")
        raise outputs.without_verdict(interrupted) from None
    except Exception as error:
        traceback.print_exc()
        # Python's exit code for a crash is 1, which would mean Failed.
        gave_up = GaveUp(f"headrace itself failed ({error!r}): there is no verdict")
        raise outputs.without_verdict(gave_up) from error


def verdict_code(
    test: MirrorTest,
    secrets: Path | None,
    timeout_s: float,
    report: Path | None,
    served_at: tuple[str, int] | None,
    *,
    outputs: ReportOutputs,
) -> Exit:
    """Run a test, and return the exit code of its verdict."""
    outputs.begin(test)
    live = LiveMetrics(test) if served_at else None

    def verify(one: MirrorTest, folder: Path | None) -> Result:
        return _verify(one, secrets, timeout_s, folder, live, outputs=outputs)

    with served(*served_at, live.text) if served_at and live else nullcontext() as port:
        if served_at and port:
            click.echo(f"Metrics: http://{served_at[0]}:{port}/metrics", err=True)
        if not test.spec.load.is_endless:
            return _CODES[verify(test, report).verdict]
        folder = report or Path("headrace-reports") / test.metadata.name
        on_verdict = live.window_ended if live else lambda _: None
        return _CODES[run_windows(test, verify, folder, on_verdict)]


def _verify(
    test: MirrorTest,
    secrets: Path | None,
    timeout_s: float,
    report: Path | None,
    live: LiveMetrics | None,
    *,
    outputs: ReportOutputs,
) -> Result:
    flow = _flow(test)
    resolved = test if flow is None else resolve(test, flow)
    if flow is not None and test.spec.audit is not None:
        wait_until_current(flow, test.spec.settle_seconds)
    run = MirrorTestRun(name=_new_name(), test=resolved, secrets=secrets)
    run.check_clusters(*(_reach(cluster, timeout_s) for cluster in (run.source, run.target)))
    if resolved.spec.audit is not None:
        check_topics(run)
    folder = report or Path("headrace-reports") / test.metadata.name / run.name
    with VerifyProgress(run) as view:
        spec = test.spec  # the resolved test lacks the fields about the flow
        result = run_test(
            run,
            spec.chaos,
            folder,
            timeout_s,
            view,
            rehearsal=spec.rehearsal,
            on_metrics=live.take if live else None,
        )
    outputs.write(result, folder)
    click.echo(summary(result, folder / documents.PAGE))
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
    """Return the running flow that the test names, or None if it names none.

    Raise an error if the flow does not run on this machine.
    """
    if test.spec.flow_name is None:
        return None
    return ReplicationFlow.model_validate(control.request(test.spec.flow_name, "flow"))


def _new_name() -> str:
    return f"{time.strftime('%y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _reach(cluster: ClusterAccess, timeout_s: float) -> str:
    """Return the id of a cluster. Raise ``GaveUp`` if no broker responds in time."""
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
    """Return the end of a message with the host names that cannot be resolved, or an empty text."""
    hosts = []
    for server in cluster.bootstrap_servers.split(","):
        host = server.strip().rpartition(":")[0].strip("[]")
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            hosts.append(host)
    return f": {', '.join(hosts)} cannot be resolved to an address" if hosts else ""


_WIDEST = 5_000


@click.command()
@click.argument(
    "reports", metavar="REPORT...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--report",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default=Path("headrace-reports"),
    show_default=True,
    help="Folder of the page comparison.html.",
)
def compare_command(reports: tuple[Path, ...], folder: Path) -> None:
    """Compare the reports of several mirror tests in a table and on a page.

    REPORT is a file report.json or the folder that contains it.

    Examples:
      headrace test compare headrace-reports/orders/*
      headrace test compare before/report.json after/report.json --report comparison
    """
    _compare(reports, folder)


def _compare(paths: Sequence[Path], folder: Path) -> None:
    if len(paths) < 2:
        raise InvalidSpec("a comparison needs at least two reports")
    files = [path / documents.REPORT if path.is_dir() else path for path in paths]
    results = [_read(file) for file in files]
    table = side_by_side(dict(zip(_names(files, results), results, strict=True)))
    _print(table)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "comparison.html"
    file.write_text(side_by_side_page(table), encoding="utf-8")
    click.echo(f"  page: {file}")


def _read(file: Path) -> Result:
    try:
        return Result.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSpec(f"{file} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, ValidationError) as error:
        raise InvalidSpec(f"{file} is not a report of this version of headrace") from error


def _names(files: Sequence[Path], results: Sequence[Result]) -> list[str]:
    """Return unique names for the reports.

    The names are the tests' names. If two of them are equal, the names are ``test/run``. If two of
    these are equal, the names are the files' paths.
    """
    for names in (
        [result.test.metadata.name for result in results],
        [f"{result.test.metadata.name}/{result.run}" for result in results],
    ):
        if max(Counter(names).values()) == 1:
            return names
    names = [str(file) for file in files]
    if len(set(names)) < len(names):
        raise InvalidSpec("a report is named twice")
    return names


def _print(table: SideBySide) -> None:
    console = Console(highlight=False)
    shown = Table(box=None, pad_edge=False)
    shown.add_column("")
    for name in table.names:
        shown.add_column(name, justify="right", overflow="fold")
    for row in table.rows:
        shown.add_row(row.title, *row.cells)
    console.print(shown, width=None if console.is_terminal else _WIDEST, no_wrap=False)
    for note in table.notes:
        click.echo(f"  note: {note}")
