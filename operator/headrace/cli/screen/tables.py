"""Tables of flows and of tasks, cut at the width of the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.screen.screen import rate

_Json = Mapping[str, Any]
_WIDEST = 5000


def show_flows(documents: Sequence[_Json]) -> None:
    """A line each; below, in full, what is wrong."""
    table = _table("FLOW", "READY", "REASON", "BEHIND", "SECONDS", "MB/S", "TASKS", "DRIVERS")
    sentences = []
    for document in documents:
        name, status = document["metadata"]["name"], document["status"]
        conditions = {one["type"]: one for one in status.get("conditions", ())}
        ready = conditions.get("Ready", {})
        lag, tasks = status.get("lag", {}), status.get("tasks", {})
        table.add_row(
            name,
            ready.get("status", "Unknown"),
            ready.get("reason", ""),
            f"{lag.get('records', 0):,}",
            str(lag.get("seconds", 0)),
            rate(status.get("bytesPerSecond")),
            f"{tasks.get('running', 0)}/{tasks.get('total', 0)}",
            str(status.get("readyReplicas", 0)),
        )
        sentences += _sentences(name, ready, status)
    _print(table)
    for sentence in dict.fromkeys(sentences):
        click.echo(sentence)


def show_tasks(units: Iterable[_Json]) -> None:
    """A line each, the error last: it gives way where there is no room for all."""
    units = list(units)
    standbys = ["STANDBYS"] if any(unit["standbys"] for unit in units) else []
    table = _table(
        "TASK", "STATE", "DRIVER", *standbys, "LAG RECORDS", "LAG S", "RESTARTS", "ERROR"
    )
    for unit in units:
        table.add_row(
            unit["name"],
            unit.get("phase", "-"),
            unit["driverName"] or f"- (assigned to {unit['assignedTo'] or 'none'})",
            *([", ".join(unit["standbys"])] if standbys else []),
            *(str(unit.get(field, "")) for field in ("lagRecords", "lagSeconds", "restarts")),
            " ".join(unit.get("lastError", {}).get("message", "").split()),
        )
    _print(table)


def show_groups(document: _Json) -> None:
    """A line for each partition of a group; below, in full, groups that are not translated, and
    what could not be read."""
    held = ["GROUP THERE"] if any("targetCommitted" in one for one in document["groups"]) else []
    table = _table(
        "GROUP", "PARTITION", "COMMITTED", "CHECKPOINT", "ON TARGET", *held, "LAG", "NOTE"
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
            *("-" if offset is None else str(offset) for offset in offsets),
            one["note"],
        )
    _print(table)
    if not document["groups"]:
        click.echo(f"No group that flow {document['flow']} follows has an offset of its topics.")
    for sentence in [*(one["note"] for one in document["notTranslated"]), *document["problems"]]:
        click.echo(sentence)


def show_rows(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A line each; ``-`` for None."""
    table = _table(*columns)
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    _print(table)


def show_findings(documents: Iterable[_Json]) -> None:
    """Of each flow a line for each finding; below, the commands that correct what is not ok."""
    for document in documents:
        findings = document["findings"]
        results = [one["result"] for one in findings]
        click.echo(
            f"Flow {document['flow']}: {results.count('missing')} missing, "
            f"{results.count('warning')} warnings, {results.count('ok')} ok"
        )
        table = _table("CLUSTER", "SUBJECT", "CHECK", "RESULT", "WHY")
        for one in findings:
            fields = ("cluster", "subject", "check", "result", "message")
            table.add_row(*(" ".join(one[field].split()) for field in fields))
        _print(table)
        for line in dict.fromkeys(one["command"] for one in findings if one["command"]):
            click.echo(line)


def _sentences(name: str, ready: _Json, status: _Json) -> list[str]:
    found = [] if ready.get("status") == "True" else [f"{name}: {ready.get('message', 'unknown')}"]
    for unit in status.get("units", ()):
        if error := unit.get("lastError"):
            found.append(f"{unit['name']}: {error['message']}")
    return found + list(status.get("notices", ()))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _print(table: Table) -> None:
    """Cut at the width of a terminal; what is piped to a file or a program is not cut."""
    console = Console(highlight=False)
    wide = Console(width=_WIDEST, highlight=False)
    for line in wide.render_lines(table, pad=False):
        text = Text.assemble(*((part.text, part.style or "") for part in line))
        text.rstrip()
        if console.is_terminal:
            text.truncate(console.width, overflow="ellipsis")
        console.print(text, soft_wrap=True)
