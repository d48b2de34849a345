"""``headrace run``: the flows of some manifests, on this machine."""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from headrace import logs
from headrace.api import Manifest, ReplicationFlow, Resets, load, unbuilt
from headrace.cli.exits import Exit
from headrace.cli.secrets_folder import secrets_folder, secrets_option
from headrace.cli.view import farewell, show
from headrace.connect.preflight import check_clients
from headrace.control import control
from headrace.control.catch_up import caught_up, progress_of, why_behind
from headrace.errors import Fatal, GaveUp, InvalidSpec
from headrace.host import state_home
from headrace.placement import check_assignor
from headrace.standalone import StandaloneHerder
from headrace.standalone.verbs import answer


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--drivers",
    type=click.IntRange(min=1),
    help="Driver processes, shared by all flows. [default: the largest spec.drivers.replicas]",
)
@secrets_option
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="Stop when all that was on the source at the start is on the target.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --until-caught-up: give up when nothing moved for so long.",
)
def command(
    files: Sequence[Path],
    drivers: int | None,
    secrets: Path | None,
    until_caught_up: bool,
    timeout: float,
) -> int:
    """Run the ReplicationFlows in FILES until Ctrl-C.

    Data survives any end of this command, kill -9 included: the next run goes on where it stopped.
    """
    manifest = load(files)
    flows = _flows(manifest, files)
    count = drivers or max([1, *(flow.spec.drivers.replicas for flow in flows)])
    for flow in flows:
        check_clients(flow)
    log_file = _log_file(flows) if sys.stderr.isatty() else None
    with ExitStack() as files_in_use:
        folder = files_in_use.enter_context(secrets_folder(secrets, manifest.secrets))
        stream = files_in_use.enter_context(log_file.open("a")) if log_file else None
        logs.configure(stream=stream)
        return _run_flows(flows, count, timeout if until_caught_up else None, log_file, folder)


def _run_flows(
    flows: Sequence[ReplicationFlow],
    drivers: int,
    give_up_after_s: float | None,
    log_file: Path | None,
    secrets: Path | None,
) -> int:
    herder = StandaloneHerder(flows, drivers, log_file, secrets)
    if log_file is not None:
        click.echo(f"Logs: {log_file}", err=True)
    return asyncio.run(_run(herder, [flow.metadata.name for flow in flows], give_up_after_s))


def _log_file(flows: Sequence[ReplicationFlow]) -> Path:
    """Where logs go while the terminal shows the live view."""
    path = state_home() / "runs" / f"{flows[0].metadata.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _flows(manifest: Manifest, files: Sequence[Path]) -> list[ReplicationFlow]:
    """The flows to run; ``InvalidSpec`` for what is not built yet."""
    flows = list(manifest.flows)
    if not flows:
        raise InvalidSpec(f"there is no ReplicationFlow in {', '.join(map(str, files))}")
    refused = []
    for flow in flows:
        asked = unbuilt(flow)
        refused += [f"flow {flow.metadata.name}: {sentence}" for sentence in asked.refused]
        try:
            check_assignor(flow.spec.tasks.assignor)
            Resets.asked(flow.metadata)
        except InvalidSpec as wrong:
            refused.append(f"flow {flow.metadata.name}: {wrong}")
        if asked.warning:
            click.echo(f"headrace: flow {flow.metadata.name}: {asked.warning}", err=True)
    if refused:
        raise InvalidSpec("\n".join(refused))
    return flows


async def _run(herder: StandaloneHerder, flows: list[str], give_up_after_s: float | None) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as sockets:
        for flow in flows:
            await sockets.enter_async_context(control.serve(flow, partial(answer, herder, flow)))
        running = asyncio.create_task(herder.run(stop))
        viewing = asyncio.create_task(show(herder, flows))
        watching = asyncio.create_task(_watch(herder, flows, give_up_after_s))
        try:
            await asyncio.wait({running, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            viewing.cancel()
            await asyncio.wait({viewing})
            farewell(herder, flows)
            stop.set()
            await asyncio.wait({running})
        running.result()
        if watching.done():
            watching.result()
        watching.cancel()
    return Exit.OK


async def _watch(herder: StandaloneHerder, flows: list[str], give_up_after_s: float | None) -> None:
    """Return when all is caught up, if that was asked for; raise what cannot go on."""
    last, since = None, time.monotonic()
    while True:
        await asyncio.sleep(0.2)
        units = {flow: herder.tasks(flow) for flow in flows}
        for tasks in units.values():
            _raise_mistakes(tasks, give_up_after_s is not None)
        if give_up_after_s is None:
            continue
        if all(caught_up(tasks) for tasks in units.values()):
            return
        now = [progress_of(tasks) for tasks in units.values()]
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > give_up_after_s:
            behind = [flow for flow in flows if not caught_up(units[flow])]
            why = "; ".join(f"{flow}: {why_behind(units[flow])}" for flow in behind)
            raise GaveUp(f"not caught up, and nothing moved for {give_up_after_s:.0f} s: {why}")


def _raise_mistakes(tasks: Sequence[Any], once: bool) -> None:
    """A mistake in the manifest that only Kafka detects ends the run: no retry corrects it."""
    for task in tasks:
        error = task.status.last_error
        if task.status.phase != "Failed" or error is None:
            continue
        if error.reason in ("InvalidSpec", "TargetTaken"):
            raise InvalidSpec(error.message)
        if once and task.status.restarts:
            raise Fatal(f"{task.metadata.name} failed: {error.message}")
