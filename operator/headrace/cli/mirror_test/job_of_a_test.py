"""What the Jobs of a mirror test that are commands of headrace have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.errors import InvalidSpec

Command = TypeVar("Command", bound=Callable[..., Any])

_PATH: Any = click.Path(path_type=Path)


def job_options(command: Command) -> Command:
    """``test``, ``name`` (of the run), ``plan``, ``ready`` and ``secrets``."""
    for option in (
        click.option("--secrets", type=_PATH, help="Folder of Secrets."),
        click.option("--ready", type=_PATH, required=True, help="File to make."),
        click.option("--plan", type=_PATH, required=True, help="What it is to do."),
        click.option("--run", "name", required=True, help="Name of the run."),
        click.option("--test", type=_PATH, required=True, help="Resolved test."),
    ):
        command = option(command)
    return command


def plan_text(path: Path) -> str:
    """Of the document of a plan; raises ``InvalidSpec``."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"the plan {path} cannot be read: {error}") from error
