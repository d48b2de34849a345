"""The option ``-o`` of commands that show something: all that is known, for programs."""

import json
from collections.abc import Callable
from typing import TypeVar

import click
import yaml
from rich.console import Console

Found = TypeVar("Found")

output_option = click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), help="All that is known, for programs."
)


def unfolded() -> Console:
    """What is piped to a file or a program is not to be folded at some width."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=1000)


def show(found: Found, output: str | None, table: Callable[[Found], None]) -> None:
    """Print a document, or a list of them, as the option has it; else a ``table`` for people."""
    match output:
        case "yaml":
            documents = found if isinstance(found, list) else [found]
            click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
        case "json":
            click.echo(json.dumps(found, indent=2))
        case _:
            table(found)
