"""The option ``--log-format`` of ``run``, ``driver`` and ``operator``, and the signal USR1."""

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
    metavar="FORMAT",
    help=f"Format of the log: {' or '.join(logs.FORMATS)}.",
)


def follow_signal() -> None:
    """Let USR1 set the level DEBUG, and a second USR1 the level of ``HEADRACE_LOG_LEVEL``."""
    signal.signal(signal.SIGUSR1, lambda *_: log.warning("log level", is_now=logs.toggle_debug()))
