"""The live view of a run: a screen on a terminal, plain lines elsewhere."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from headrace.api import ReplicationFlowStatus
from headrace.cli.screen.screen import FlowView, behind, elapsed, rate, readiness, screen
from headrace.standalone import StandaloneHerder

_REFRESH_S = 0.5
_PLAIN_INTERVAL_S = 5.0


async def show(herder: StandaloneHerder) -> None:
    """Show until cancelled."""
    console = Console(stderr=True)
    if console.is_terminal:
        await _show_screen(console, herder)
    else:
        await _show_lines(herder)


def flow_views(herder: StandaloneHerder) -> list[FlowView]:
    """All flows as they are now."""
    return [FlowView(name, herder.status(name), herder.tasks(name)) for name in herder.flows()]


def farewell(flows: Sequence[FlowView], elapsed_s: float, why: str) -> None:
    """A last sentence for each flow, when all has ended: how it was when it was asked to stop."""
    for flow in flows:
        lag = flow.status.lag
        left = behind(lag.records if lag else 0, lag.seconds if lag else 0)
        state = "" if flow.ready else f"; it was {readiness(flow.status)}"
        _say(
            f"{flow.name}: stopped {why} after {elapsed(elapsed_s)}: {left}{state}; progress is on "
            "the target, the next run resumes there"
        )


class LiveScreen:
    """Renders to the size that the terminal has at that moment."""

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
        # The whole screen each time, so that a resize leaves nothing behind.
        yield Text("\n", no_wrap=True).join(lines)


async def _show_screen(console: Console, herder: StandaloneHerder) -> None:
    shown = LiveScreen(herder)
    with Live(shown, console=console, auto_refresh=False, screen=True) as live:
        while True:
            with suppress(OSError):
                live.refresh()
            await asyncio.sleep(_REFRESH_S)


async def _show_lines(herder: StandaloneHerder) -> None:
    """A line a flow every few seconds, and at once when its readiness changes."""
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
    with suppress(OSError):  # a full disk behind standard error ends no flow
        click.echo(line, err=True)


def _summary(status: ReplicationFlowStatus) -> str:
    tasks, lag = status.tasks, status.lag
    return (
        f"{status.topics or 0} topics, {status.partitions or 0} partitions, "
        f"{tasks.running if tasks else 0}/{tasks.total if tasks else 0} tasks running, "
        f"{status.ready_replicas or 0} drivers, lag {lag.records if lag else 0:,} records "
        f"{lag.seconds if lag else 0} s, {rate(status.bytes_per_second)} MB/s"
    )
