"""Option and argument that name the manifests of a command, and the choice of a flow in them."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from headrace.api import ReplicationFlow
from headrace.errors import InvalidSpec

_FILE: Any = click.Path(path_type=Path, allow_dash=True)


def manifest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``FILE`` and ``-f FILE`` to a command, as the parameter ``files``.

    A file may be a folder of manifests, or ``-`` for standard input.
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


def named_flow(file: Path, flows: Sequence[ReplicationFlow], name: str | None) -> ReplicationFlow:
    """Return the flow of a manifest with this name, or its only flow if the name is None."""
    found = [one for one in flows if name in (None, one.metadata.name)]
    if len(found) != 1:
        names = ", ".join(one.metadata.name for one in flows) or "none"
        raise InvalidSpec(f"{file} contains these ReplicationFlows: {names}; name one of them")
    return found[0]
