"""How processes log: the option that ``run``, ``driver`` and ``operator`` share, and a signal."""

import signal
from collections.abc import Callable
from typing import Any

import click

from headrace import logs

log = logs.get_logger(__name__)

log_format_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default=logs.FORMATS[0],
    show_default=True,
    envvar="HEADRACE_LOG_FORMAT",
    help="Of the lines of the log.",
)


def follow_signal() -> None:
    """USR1: log everything; once more: what ``HEADRACE_LOG_LEVEL`` says."""
    signal.signal(signal.SIGUSR1, lambda *_: log.warning("log level", is_now=logs.toggle_debug()))
