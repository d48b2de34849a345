"""``headrace test compare``: compares the reports of several mirror tests."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from headrace.errors import InvalidSpec
from headrace.mirror_test import Result, documents
from headrace.report.pages import SideBySide, side_by_side, side_by_side_page

_WIDEST = 5_000


@click.command()
@click.argument(
    "reports", metavar="REPORT...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--report",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default=Path("headrace-reports"),
    show_default=True,
    help="Folder of the page comparison.html.",
)
def command(reports: tuple[Path, ...], folder: Path) -> None:
    """Compare the reports of several mirror tests in a table and on a page.

    REPORT is a file report.json or the folder that contains it.

    Examples:
      headrace test compare headrace-reports/orders/*
      headrace test compare before/report.json after/report.json --report comparison
    """
    _compare(reports, folder)


def _compare(paths: Sequence[Path], folder: Path) -> None:
    if len(paths) < 2:
        raise InvalidSpec("a comparison needs at least two reports")
    files = [path / documents.REPORT if path.is_dir() else path for path in paths]
    results = [_read(file) for file in files]
    table = side_by_side(dict(zip(_names(files, results), results, strict=True)))
    _print(table)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "comparison.html"
    file.write_text(side_by_side_page(table), encoding="utf-8")
    click.echo(f"  page: {file}")


def _read(file: Path) -> Result:
    try:
        return Result.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSpec(f"{file} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, ValidationError) as error:
        raise InvalidSpec(f"{file} is no report of this version of headrace") from error


def _names(files: Sequence[Path], results: Sequence[Result]) -> list[str]:
    """The tests' names; of tests of one name the runs', of copies of one run the files."""
    for names in (
        [result.test.metadata.name for result in results],
        [f"{result.test.metadata.name}/{result.run}" for result in results],
    ):
        if max(Counter(names).values()) == 1:
            return names
    names = [str(file) for file in files]
    if len(set(names)) < len(names):
        raise InvalidSpec("a report is named twice")
    return names


def _print(table: SideBySide) -> None:
    console = Console(highlight=False)
    shown = Table(box=None, pad_edge=False)
    shown.add_column("")
    for name in table.names:
        shown.add_column(name, justify="right", overflow="fold")
    for row in table.rows:
        shown.add_row(row.title, *row.cells)
    console.print(shown, width=None if console.is_terminal else _WIDEST, no_wrap=False)
    for note in table.notes:
        click.echo(f"  note: {note}")
