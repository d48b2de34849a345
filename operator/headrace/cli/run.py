"""``headrace run``: runs the flows of manifests on this machine."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from headrace import logs
from headrace.api import Manifest, ReplicationFlow, ReplicationFlowStatus
from headrace.cli.screen.exits import Exit
from headrace.cli.screen.manifest_option import manifest_options
from headrace.cli.screen.options import (
    OF_A_RUN,
    log_format_option,
    metrics_options,
    rewrite_secrets,
    secrets_folder,
    secrets_option,
)
from headrace.cli.screen.screen import FlowView, elapsed, format_lag, rate, readiness, screen
from headrace.control import control_server
from headrace.control.flow_actions import caught_up, progress_of, why_behind
from headrace.errors import Fatal, GaveUp, InvalidSpec
from headrace.host import state_home
from headrace.standalone import StandaloneHerder, driver_server
from headrace.standalone.control_handlers import answer
from headrace.standalone.manifests import ManifestFiles
from headrace.standalone.reload import PauseRecords, Reload, driver_count


async def watch(herder: StandaloneHerder, reload: Reload, give_up_after_s: float | None) -> None:
    """Watch the flows.

    With ``give_up_after_s``, return when all flows have caught up, or raise ``GaveUp`` if nothing
    was copied for that time. Until the first reload, also raise errors that no retry can correct.
    """
    last, since = None, time.monotonic()
    while True:
        await asyncio.sleep(0.2)
        units = {flow: herder.tasks(flow) for flow in herder.flows()}
        for tasks in units.values():
            if not reload.happened:  # after a wrong edit, only the tasks fail
                _raise_mistakes(tasks, give_up_after_s is not None)
        if give_up_after_s is None:
            continue
        if all(caught_up(tasks) for tasks in units.values()):
            return
        now = [progress_of(tasks) for tasks in units.values()]
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > give_up_after_s:
            behind = [flow for flow in units if not caught_up(units[flow])]
            why = "; ".join(f"{flow}: {why_behind(units[flow])}" for flow in behind)
            raise GaveUp(f"not caught up, and nothing moved for {give_up_after_s:.0f} s: {why}")


def _raise_mistakes(tasks: Sequence[Any], once: bool) -> None:
    """Raise the error of a failed task if no retry can correct it, such as an invalid spec.

    With ``once``, also raise the error of a failed task that has been restarted before.
    """
    for task in tasks:
        error = task.status.last_error
        if task.status.phase != "Failed" or error is None:
            continue
        if error.reason in ("InvalidSpec", "TargetTaken"):
            raise InvalidSpec(error.message)
        if once and task.status.restarts:
            raise Fatal(f"{task.metadata.name} failed: {error.message}")


_REFRESH_S = 0.5
_PLAIN_INTERVAL_S = 5.0


async def show(herder: StandaloneHerder) -> None:
    """Show the state of all flows until cancelled."""
    console = Console(stderr=True)
    if console.is_terminal:
        await _show_screen(console, herder)
    else:
        await _show_lines(herder)


def flow_views(herder: StandaloneHerder) -> list[FlowView]:
    return [FlowView(name, herder.status(name), herder.tasks(name)) for name in herder.flows()]


def print_summary(flows: Sequence[FlowView], elapsed_s: float, why: str) -> None:
    """Print a last sentence for each flow, with its state when the stop was requested."""
    for flow in flows:
        left = format_lag(flow.status.lag)
        state = "" if flow.ready else f"; it was {readiness(flow.status)}"
        _say(
            f"{flow.name}: stopped {why} after {elapsed(elapsed_s)}: {left}{state}; progress is on "
            "the target, the next run resumes there"
        )


class LiveScreen:
    """Live view, rendered for the current size of the terminal."""

    def __init__(self, herder: StandaloneHerder) -> None:
        self._herder = herder
        self._began = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = screen(
            flow_views(self._herder),
            self._herder.notices(),
            time.monotonic() - self._began,
            options.max_width,
            options.height or console.height,
        )
        # Fill the whole screen each time, so that a resize leaves no old content.
        yield Text("\n", no_wrap=True).join(lines)


async def _show_screen(console: Console, herder: StandaloneHerder) -> None:
    shown = LiveScreen(herder)
    with Live(shown, console=console, auto_refresh=False, screen=True) as live:
        while True:
            with suppress(OSError):
                live.refresh()
            await asyncio.sleep(_REFRESH_S)


async def _show_lines(herder: StandaloneHerder) -> None:
    """Print a line for each flow every 5 s, and immediately if its readiness changes."""
    shown: dict[str, tuple[str, float]] = {}
    while True:
        for flow in herder.flows():
            status = herder.status(flow)
            word = readiness(status)
            last_word, at = shown.get(flow, ("", 0.0))
            if word != last_word or time.monotonic() - at >= _PLAIN_INTERVAL_S:
                shown[flow] = (word, time.monotonic())
                _say(f"{flow}: {word}; {_summary(status)}")
        await asyncio.sleep(_REFRESH_S)


def _say(line: str) -> None:
    if logs.is_json() and not sys.stderr.isatty():  # programs parse standard error as a log
        log.info(line)
        return
    with suppress(OSError):  # a full disk behind standard error must not end the flows
        click.echo(line, err=True)


def _summary(status: ReplicationFlowStatus) -> str:
    tasks, lag = status.tasks, status.lag
    waiting = f"lag {lag.records:,} records {lag.seconds} s" if lag else "lag unknown"
    return (
        f"{status.topics or 0} topics, {status.partitions or 0} partitions, "
        f"{tasks.running if tasks else 0}/{tasks.total if tasks else 0} tasks running, "
        f"{status.ready_replicas or 0} drivers, {waiting}, {rate(status.bytes_per_second)} MB/s"
    )


log = logs.get_logger(__name__)

_LOG_BYTES = 50 << 20
"""Size in bytes above which a log file is renamed at the next start."""


@click.command()
@manifest_options
@click.option(
    "--drivers",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Number of driver processes, shared by all flows. "
    "[default: the largest spec.drivers.replicas]",
)
@click.option(
    "--rack",
    "racks",
    multiple=True,
    metavar="RACK",
    help="Rack or zone of this machine. Records are read from replicas in this rack if possible. "
    "Repeatable: the drivers get the racks in turn.",
)
@secrets_option(OF_A_RUN)
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when all records that the source had at the start are on the target.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit without progress for --until-caught-up, in seconds.",
)
@metrics_options("the dashboard, /metrics, /healthz and /readyz")
@log_format_option
def command(files: Sequence[Path], **options: Any) -> int:
    """Run the ReplicationFlows in FILE until Ctrl-C.

    Progress is stored on the target. After any end of this command, kill -9 included, the next run
    resumes there. The signal HUP makes it read the manifests again. USR1 turns DEBUG logs on and
    off.

    Examples:
      headrace run flow.yaml
      headrace run -f flows/ --drivers 4 --metrics-port 9404
      headrace run flow.yaml --until-caught-up
      headrace sandbox flow 'orders.*' | headrace run -f -
    """
    return _run_files(ManifestFiles(files), Options(**options))


@dataclass(frozen=True)
class Options:
    """Options of the command."""

    drivers: int | None
    racks: tuple[str, ...]
    secrets: Path | None
    until_caught_up: bool
    timeout: float
    metrics_port: int | None
    metrics_address: str
    log_format: str


def _run_files(files: ManifestFiles, options: Options) -> int:
    manifest = files.read()
    server = driver_server()
    server.open()
    log_file = _log_file(manifest.flows) if sys.stderr.isatty() else None
    with ExitStack() as in_use:
        secrets = in_use.enter_context(secrets_folder(options.secrets, manifest.secrets))
        stream = in_use.enter_context(log_file.open("a")) if log_file else None
        logs.configure(stream=stream, format=options.log_format)
        pauses = PauseRecords(_runs_folder())
        flows = [pauses.applied(flow) for flow in manifest.flows]
        herder = StandaloneHerder(
            flows,
            options.drivers or driver_count(manifest.flows),
            log_file,
            secrets,
            options.log_format,
            server=server,
            racks=options.racks,
        )
        if log_file is not None:
            click.echo(f"Logs: {log_file}", err=True)

        def write_secrets(read: Manifest) -> None:
            rewrite_secrets(options.secrets, secrets, read.secrets)

        running = _run(
            herder,
            files=files,
            manifest=manifest,
            pauses=pauses,
            write_secrets=write_secrets,
            options=options,
        )
        return asyncio.run(running)


def _log_file(flows: Sequence[ReplicationFlow]) -> Path:
    """Return the log file for the time in which the terminal shows the live view.

    A log file that has become too large is renamed to ``.log.1``.
    """
    path = _runs_folder() / f"{flows[0].metadata.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return path


def _runs_folder() -> Path:
    return state_home() / "runs"


async def _run(
    herder: StandaloneHerder,
    *,
    files: ManifestFiles,
    manifest: Manifest,
    pauses: PauseRecords,
    write_secrets: Callable[[Manifest], None],
    options: Options,
) -> int:
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    on_terminal = sys.stderr.isatty()

    def hang_up() -> None:
        closed = on_terminal and is_hung_up(sys.stderr.fileno())
        (stop if closed else reload).set()

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    loop.add_signal_handler(signal.SIGUSR1, lambda: herder.set_log_level(logs.toggle_debug()))
    async with AsyncExitStack() as sockets:
        served = asyncio.Event()

        async def serve(flow: str) -> None:
            async def handle(verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
                await served.wait()  # wait until the dashboard's address is known
                return await answer(herder, flow, verb, arguments)

            await sockets.enter_async_context(control_server.serve(flow, handle))

        declared = {flow.metadata.name: flow for flow in manifest.flows}
        for flow in declared:
            await serve(flow)
        if options.metrics_port is not None:
            await sockets.enter_async_context(_serve_metrics(herder, options))
        served.set()
        reloading = Reload(
            herder,
            files,
            declared,
            pauses,
            drivers=options.drivers,
            write_secrets=write_secrets,
            serve=serve,
        )
        ended, began = asyncio.Event(), time.monotonic()
        running = asyncio.create_task(herder.run(ended))
        viewing = asyncio.create_task(show(herder))
        give_up_after_s = options.timeout if options.until_caught_up else None
        watching = asyncio.create_task(watch(herder, reloading, give_up_after_s))
        following = asyncio.create_task(_follow(reload, reloading))
        stopping = asyncio.create_task(stop.wait())
        ends: set[asyncio.Task[Any]] = {running, watching, following, stopping}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            viewing.cancel()
            await asyncio.wait({viewing})
            last = flow_views(herder)
            ended.set()
            await asyncio.wait({running})
            why = "as it was asked to" if stop.is_set() else "by itself"
            print_summary(last, time.monotonic() - began, why)
            stopping.cancel()
        running.result()
        for end in (watching, following):
            if end.done():
                end.result()
            end.cancel()
    return Exit.OK


def is_hung_up(terminal: int) -> bool:
    """Return True if HUP was sent because the terminal was closed. The run then ends."""
    try:
        os.get_terminal_size(terminal)
    except OSError:
        return True
    return False


async def _follow(asked: asyncio.Event, reload: Reload) -> None:
    """Read the manifests again at each request."""
    while True:
        await asked.wait()
        asked.clear()
        await reload.run_once()


@asynccontextmanager
async def _serve_metrics(herder: StandaloneHerder, options: Options) -> AsyncIterator[None]:
    # These modules are needed only with --metrics-port.
    from headrace.standalone import dashboard  # noqa: PLC0415
    from headrace.standalone.metrics import not_ready, run_registry  # noqa: PLC0415
    from headrace.telemetry.serving import serve  # noqa: PLC0415

    registry = run_registry(herder, asyncio.get_running_loop())
    history = dashboard.History(registry)
    async with serve(
        options.metrics_address,
        options.metrics_port or 0,
        registry,
        live=list,
        ready=partial(not_ready, herder),
        pages={
            "/": ("text/html", dashboard.page),
            "/dashboard.json": ("application/json", lambda: json.dumps(history.document())),
        },
        option="--metrics-port or --metrics-address",
    ) as port:
        log.info("serves metrics", address=options.metrics_address, port=port)
        herder.dashboard = dashboard.url(options.metrics_address, port)
        adding = asyncio.create_task(history.run())
        try:
            yield
        finally:
            adding.cancel()
