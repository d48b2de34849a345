"""Option for the manifests that a command reads: ``FILE`` or ``-f FILE``."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

_FILE: Any = click.Path(path_type=Path, allow_dash=True)


def manifest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the parameter ``files`` to a command.

    The values are manifest files, folders of them, or ``-`` for standard input.
    """

    @wraps(command)
    def with_files(arguments: tuple[Path, ...], options: tuple[Path, ...], **others: Any) -> Any:
        files = (*arguments, *options)
        if not files:
            raise click.UsageError("name a manifest: FILE or -f FILE", click.get_current_context())
        return command(files=files, **others)

    option = click.option(
        "-f",
        "--file",
        "options",
        multiple=True,
        type=_FILE,
        metavar="FILE",
        help="Manifest: a YAML file, a folder of such files, or - for standard input. Repeatable.",
    )
    argument = click.argument("arguments", metavar="[FILE]...", nargs=-1, type=_FILE)
    return argument(option(with_files))
