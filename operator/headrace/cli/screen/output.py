"""Output of commands that print data: tables, JSON and YAML."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console

Found = TypeVar("Found")
FoundIn_contra = TypeVar("FoundIn_contra", contravariant=True)
Command = TypeVar("Command", bound=Callable[..., Any])

_FORMATS = ("table", "wide", "yaml", "json", "name")
WATCH_INTERVAL_S = 2.0
"""Interval between two reads, in seconds. A driver reports its figures every second."""

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
    """Function that prints data as a table."""

    def __call__(self, found: FoundIn_contra, /, *, wide: bool = False) -> None:
        """Print the table. A wide table has all columns, and its lines are not cut."""
        ...


def show(
    found: Found, output: str, table: Table[Found], names: Callable[[Found], Iterable[str]]
) -> None:
    """Print a document, or a list of documents, in the format ``output``."""
    match output:
        case "yaml":
            import yaml  # noqa: PLC0415 - takes a tenth of a command's start-up time

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
    """Print and return what ``read`` returns. With ``watch``, repeat it after each change."""
    found = read()
    show(found, output, table, names)
    while watch:
        time.sleep(WATCH_INTERVAL_S)
        if (now := read()) == found:
            continue
        found = now
        if output in ("table", "wide"):
            click.clear()  # does nothing if the output is not a terminal
        show(found, output, table, names)
    return found


_Json = Mapping[str, Any]


def show_flows(documents: Sequence[_Json], *, wide: bool = False) -> None:
    """Print a line for each flow, and all errors in full below the table."""
    columns = ["FLOW", "READY", "REASON", "BEHIND", "SECONDS", "MB/S", "TASKS", "DRIVERS"]
    spaces = ["NAMESPACE"] if _in_several([one["metadata"] for one in documents]) else []
    table = _Table(*spaces, *columns, *(["TOPICS", "PARTITIONS"] if wide else []))
    sentences = []
    for document in documents:
        metadata, status = document["metadata"], document["status"]
        conditions = {one["type"]: one for one in status.get("conditions", ())}
        ready = conditions.get("Ready", {})
        lag, tasks = status.get("lag"), status.get("tasks", {})
        table.add_row(
            *([metadata["namespace"]] if spaces else []),
            metadata["name"],
            ready.get("status", "Unknown"),
            ready.get("reason", ""),
            f"{lag.get('records', 0):,}" if lag is not None else "-",
            str(lag.get("seconds", 0)) if lag is not None else "-",
            _rate(status.get("bytesPerSecond")),
            f"{tasks.get('running', 0)}/{tasks.get('total', 0)}",
            str(status.get("readyReplicas", 0)),
            *([str(status.get(field, 0)) for field in ("topics", "partitions")] if wide else []),
        )
        sentences += _sentences(metadata["name"], ready, status)
    _print(table, wide=wide)
    for sentence in dict.fromkeys(sentences):
        click.echo(sentence)


def show_tasks(units: Iterable[_Json], *, wide: bool = False) -> None:
    """Print a line for each unit. The error is the last column, so that it is cut first."""
    units = list(units)
    spaces = ["NAMESPACE"] if _in_several(units) else []
    standbys = ["STANDBYS"] if wide or any(unit["standbys"] for unit in units) else []
    more = ["TYPE", "ASSIGNED TO", "MB/S"] if wide else []
    table = _Table(
        *(*spaces, "TASK", "STATE", "DRIVER", *standbys, *more),
        *("LAG RECORDS", "LAG S", "RESTARTS", "ERROR"),
    )
    for unit in units:
        copies = unit["type"] == "SourceTask"
        rate = _rate(unit.get("bytesPerSecond")) if copies else ""
        lag = unit.get("lag", {}) if copies else dict.fromkeys(("records", "seconds"), "")
        table.add_row(
            *([unit["namespace"]] if spaces else []),
            unit["name"],
            unit.get("phase", "-"),
            unit["driverName"] or f"- (assigned to {unit['assignedTo'] or 'none'})",
            *([", ".join(unit["standbys"])] if standbys else []),
            *([unit["type"], unit["assignedTo"], rate] if wide else []),
            *(str(lag.get(field, "-")) for field in ("records", "seconds")),
            str(unit.get("restarts", "")),
            " ".join(unit.get("lastError", {}).get("message", "").split()),
        )
    _print(table, wide=wide)


def show_document(found: _Json, *, wide: bool = False) -> None:
    """Print a single object as YAML, because a table would have one line."""
    import yaml  # noqa: PLC0415 - takes a tenth of a command's start-up time

    click.echo(yaml.safe_dump(dict(found), sort_keys=False), nl=False)


def show_groups(document: _Json, *, wide: bool = False) -> None:
    """Print a line for each partition of each group.

    Below the table, print the groups that are not translated, and all problems.
    """
    held = ["GROUP THERE"] if any("targetCommitted" in one for one in document["groups"]) else []
    table = _Table(
        *("GROUP", "PARTITION", *(["TARGET TOPIC"] if wide else [])),
        *("COMMITTED", "CHECKPOINT", "ON TARGET", *held, "LAG", "NOTE"),
    )
    for one in document["groups"]:
        checkpoint = one["checkpoint"] or {}
        offsets = (
            one["committed"],
            checkpoint.get("sourceOffset"),
            checkpoint.get("targetOffset"),
            *([one["targetCommitted"]] if held else []),
            one["lag"],
        )
        table.add_row(
            one["group"],
            f"{one['topic']}/{one['partition']}",
            *([one["targetTopic"]] if wide else []),
            *("-" if offset is None else str(offset) for offset in offsets),
            one["note"],
        )
    _print(table, wide=wide)
    if not document["groups"]:
        click.echo(f"No group that flow {document['flow']} follows has an offset of its topics.")
    for sentence in [*(one["note"] for one in document["notTranslated"]), *document["problems"]]:
        click.echo(sentence)


def show_rows(
    columns: Sequence[str], rows: Iterable[Iterable[object]], *, wide: bool = False
) -> None:
    """Print a line for each row, with ``-`` for None."""
    table = _Table(*columns)
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    _print(table, wide=wide)


def show_findings(documents: Iterable[_Json], *, wide: bool = False) -> None:
    """Print a line for each finding of each flow, then the commands that correct them."""
    for document in documents:
        findings = document["findings"]
        results = [one["result"] for one in findings]
        click.echo(
            f"Flow {document['flow']}: {results.count('missing')} missing, "
            f"{results.count('warning')} warnings, {results.count('ok')} ok"
        )
        table = _Table("CLUSTER", "SUBJECT", "CHECK", "RESULT", "WHY")
        for one in findings:
            fields = ("cluster", "subject", "check", "result", "message")
            table.add_row(*(" ".join(one[field].split()) for field in fields))
        _print(table, wide=wide)
        for line in dict.fromkeys(one["command"] for one in findings if one["command"]):
            click.echo(line)


def _in_several(places: Sequence[_Json]) -> bool:
    """Return True if objects are in several namespaces, so that a column must show them."""
    return len({place.get("namespace") for place in places}) > 1


def _rate(bytes_per_second: float | None) -> str:
    """Return a rate in MB/s, for example ``12.3``."""
    return f"{(bytes_per_second or 0) / 1e6:.1f}"


def _sentences(name: str, ready: _Json, status: _Json) -> list[str]:
    found = [] if ready.get("status") == "True" else [f"{name}: {ready.get('message', 'unknown')}"]
    found += [f"{name}: {one['type']}: {one.get('message', '')}" for one in _alarms(status)]
    for unit in status.get("units", ()):
        if error := unit.get("lastError"):
            found.append(f"{unit['name']}: {error['message']}")
    return found + list(status.get("notices", ()))


def _alarms(status: _Json) -> list[_Json]:
    """Return the conditions with status True on which a user should act."""
    others = [
        one
        for one in status.get("conditions", ())
        if one["status"] == "True" and one["type"] != "Ready"
    ]
    if not others:
        return []  # skips the import below, which takes a tenth of a second
    from headrace.api import ALARMS  # noqa: PLC0415

    return [one for one in others if one["type"] in ALARMS]


class _Table:
    """Table of text with column names. Faster than rich's tables, which take 1 ms per row."""

    def __init__(self, *columns: str) -> None:
        self._rows = [columns]

    def add_row(self, *cells: str) -> None:
        """Add a row with a cell for each column."""
        self._rows.append(cells)

    def lines(self) -> Iterator[str]:
        """Yield the header and the rows, with aligned columns."""
        widths = [max(map(cell_len, column)) for column in zip(*self._rows, strict=True)]
        for row in self._rows:
            cells = zip(row, widths, strict=True)
            padded = (f"{cell}{' ' * (width - cell_len(cell))}" for cell, width in cells)
            yield "  ".join(padded).rstrip()


def _print(table: _Table, *, wide: bool) -> None:
    """Print a table. On a terminal, cut lines at its width unless ``wide``."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns
    lines = []
    for number, line in enumerate(table.lines()):
        shown = line
        if terminal and not wide and cell_len(line) > width:
            shown = f"{set_cell_size(line, width - 1).rstrip()}…"
        lines.append(click.style(shown, dim=True) if terminal and number == 0 else shown)
    click.echo("\n".join(lines))


def unfolded() -> Console:
    """Return a console that does not wrap lines if its output is a file or a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=1000)
