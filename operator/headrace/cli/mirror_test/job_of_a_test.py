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
        click.option("--secrets", type=_PATH, metavar="DIR", help="Folder of Secrets."),
        click.option(
            "--ready", type=_PATH, metavar="FILE", required=True, help="File to create when ready."
        ),
        click.option("--plan", type=_PATH, metavar="FILE", required=True, help="File of the plan."),
        click.option("--run", "name", metavar="RUN", required=True, help="Name of the run."),
        click.option(
            "--test", type=_PATH, metavar="FILE", required=True, help="File of the resolved test."
        ),
    ):
        command = option(command)
    return command


def plan_text(path: Path) -> str:
    """Of the document of a plan; raises ``InvalidSpec``."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"the plan {path} cannot be read: {error}") from error
