"""Lists and draws the rooms of ``docs/architecture.md`` from the contracts in ``pyproject.toml``.

``python docs/rooms.py`` writes tables and drawing between the two marks on the page. An arrow means
"may import". Arrows that follow from two others are left out, as are the arrows of ``cli``.
"""

import ast
import tomllib
from pathlib import Path
from typing import Any

from marks import between

ROOT = Path(__file__).parents[1]
ROOMS = ROOT / "operator" / "headrace"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: written by docs/rooms.py -->", "<!-- rooms: end -->"
ALLOWS_ALL = "cli"

Arrows = dict[str, set[str]]


def allowed() -> Arrows:
    """Return the allowed imports, top to bottom: lower layers, except forbidden ones."""
    contracts = _contracts()
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rooms = [room for room in layers if ":" not in room]
    arrows = {room: set(rooms[place + 1 :]) for place, room in enumerate(rooms)}
    arrows["headrace_spark"] = set(rooms)
    for contract in contracts:
        if contract["type"] == "forbidden":
            for room in map(_room, contract["source_modules"]):
                arrows[room] -= set(map(_room, contract["forbidden_modules"]))
        elif contract["type"] == "independence":
            for room in map(_room, contract["modules"]):
                arrows[room] -= set(map(_room, contract["modules"]))
    return arrows


def table() -> str:
    """Return a row for each room, with the first line of its docstring."""
    rows = ["| room | purpose |", "| --- | --- |"]
    return "\n".join([*rows, *(f"| `{room}` | {_purpose(room)} |" for room in allowed())])


def drawing() -> str:
    """Return the arrows as a mermaid flowchart."""
    arrows = {room: below for room, below in allowed().items() if room != ALLOWS_ALL}
    lines = ["```mermaid", "flowchart TD"]
    for room, below in arrows.items():
        implied = {deeper for middle in below for deeper in arrows.get(middle, set())}
        lines += [f"  {room} --> {other}" for other in sorted(below - implied)]
    return "\n".join([*lines, "```"])


def inner_table() -> str:
    """Return the rooms within rooms, from top to bottom, with their purposes."""
    rows = ["| room within a room | purpose |", "| --- | --- |"]
    for contract in _contracts():
        if contract["type"] == "layers" and contract["containers"] != ["headrace"]:
            room = _room(contract["containers"][0])
            inner = [name for layer in contract["layers"] for name in layer.split(" | ")]
            rows += [
                f"| `{room}/{name}` | {_purpose(f'{room}/{name}')} |"
                for name in inner
                if (ROOMS / room / name).is_dir()
            ]
    return "\n".join(rows)


def page() -> str:
    """Return the page, with tables and drawing between its marks."""
    return between(PAGE, BEGIN, END, f"{table()}\n\n{drawing()}\n\n{inner_table()}")


def _contracts() -> list[Any]:
    text = (ROOT / "pyproject.toml").read_text()
    contracts: list[Any] = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return contracts


def _purpose(room: str) -> str:
    package = ROOMS / room if (ROOMS / room).exists() else ROOT / "spark-jobs" / room
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    return docstring.partition("\n")[0].replace("``", "`")


def _room(module: str) -> str:
    return module.removeprefix("headrace.")


if __name__ == "__main__":
    PAGE.write_text(page())
