"""The option ``--log-format`` of ``run``, ``driver`` and ``operator``."""

from collections.abc import Callable
from typing import Any

import click

from headrace import logs

log_format_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default=logs.FORMATS[0],
    show_default=True,
    envvar="HEADRACE_LOG_FORMAT",
    metavar="FORMAT",
    help=f"Format of the log: {' or '.join(logs.FORMATS)}.",
)
