"""The option ``--yes`` of commands that delete something."""

import sys

import click

from headrace.errors import InvalidSpec

yes_option = click.option("-y", "--yes", is_flag=True, help="Deletion without a question.")


def confirm(deletion: str, *, yes: bool) -> None:
    """Ask before a deletion, unless ``yes``. End the command if the answer is no.

    Raises:
        InvalidSpec: There is no terminal on which the question could be answered.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidSpec(f"{deletion}: confirm it with --yes, as there is no terminal to ask on")
    click.confirm(f"{deletion}?", abort=True)
