"""Draws the rooms of ``docs/architecture.md`` from the import contracts in ``pyproject.toml``.

``python docs/rooms.py`` writes the drawing between the two marks on the page. An arrow says "may
import"; one that follows from two others is left out, and so are ``cli``'s, which may import all.
"""

import tomllib
from pathlib import Path

from marks import between

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: drawn by docs/rooms.py -->", "<!-- rooms: end -->"
ALLOWS_ALL = "cli"

Arrows = dict[str, set[str]]


def allowed() -> Arrows:
    """Who may import whom, top to bottom: what lies below, less what a contract forbids."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rooms = [room for room in layers if "|" not in room]
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


def drawing() -> str:
    """The arrows as a mermaid flowchart."""
    arrows = {room: below for room, below in allowed().items() if room != ALLOWS_ALL}
    lines = ["```mermaid", "flowchart TD"]
    for room, below in arrows.items():
        implied = {deeper for middle in below for deeper in arrows.get(middle, set())}
        lines += [f"  {room} --> {other}" for other in sorted(below - implied)]
    return "\n".join([*lines, "```"])


def page_with(text: str) -> str:
    """The page, with ``text`` between its marks."""
    return between(PAGE, BEGIN, END, text)


def _room(module: str) -> str:
    return module.removeprefix("headrace.")


if __name__ == "__main__":
    PAGE.write_text(page_with(drawing()))
