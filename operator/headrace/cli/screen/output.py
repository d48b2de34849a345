"""The options ``-o`` and ``--watch`` of commands that print data."""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import click

Found = TypeVar("Found")
FoundIn_contra = TypeVar("FoundIn_contra", contravariant=True)
Command = TypeVar("Command", bound=Callable[..., Any])

_FORMATS = ("table", "wide", "yaml", "json", "name")
WATCH_INTERVAL_S = 2.0
"""Time between two reads. A driver reports its figures every second."""

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(_FORMATS),
    metavar="FORMAT",
    default="table",
    show_default=True,
    help="Output format: table, wide (all columns, never cut), yaml, json or name.",
)
watch_option = click.option(
    "-w", "--watch", is_flag=True, help="Repeated output after each change, until Ctrl-C."
)


class Table(Protocol[FoundIn_contra]):
    """A function that prints data as a table for people."""

    def __call__(self, found: FoundIn_contra, /, *, wide: bool = False) -> None:
        """Print the table. A wide one has all columns and is not cut."""
        ...


def show(
    found: Found, output: str, table: Table[Found], names: Callable[[Found], Iterable[str]]
) -> None:
    """Print a document, or a list of documents, in the format ``output``."""
    match output:
        case "yaml":
            import yaml  # noqa: PLC0415 - a tenth of the start of a command

            documents = found if isinstance(found, list) else [found]
            click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        case "json":
            click.echo(json.dumps(found, indent=2))
        case "name":
            for name in names(found):
                click.echo(name)
        case _:
            table(found, wide=output == "wide")


def watch_and_show(
    read: Callable[[], Found],
    output: str,
    table: Table[Found],
    names: Callable[[Found], Iterable[str]],
    *,
    watch: bool,
) -> Found:
    """Print and return what ``read`` returns; with ``watch``, again after each change."""
    found = read()
    show(found, output, table, names)
    while watch:
        time.sleep(WATCH_INTERVAL_S)
        if (now := read()) == found:
            continue
        found = now
        if output in ("table", "wide"):
            click.clear()  # does nothing where the output is not a terminal
        show(found, output, table, names)
    return found
