"""Mutations: small faults put into the product one at a time, to see whether the tests find them.

``make mutations``. A seed decides which faults are drawn, about as many from each room. Each one is
written into a copy of the sources, so the working tree stays as it is. The unit tests of its room
run first, then all unit and property tests, and the first failure ends the run. A mutation that no
test finds is printed as a diff: it is an equivalent change, needs a test, or is found by the tests
with brokers only.
"""

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "operator" / "headrace"
COPIED = ("operator", "spark-jobs", "tests", "tools", "docs", "crds", "charts", "examples")
_TIMEOUT_S = 900
"""Limit of one run of tests. A mutation that makes them hang is found."""
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_CHECK = ("-m", "not long", "--numprocesses", "2", "tests/unit", "tests/property")
_QUIET = ("log.", "self._log.", "console.", "status.update", "gc.")
"""Beginnings of calls whose removal changes only output."""


@dataclass(frozen=True)
class Mutation:
    """One fault."""

    path: Path
    """The module, relative to the repository."""
    line: int
    kind: str
    """For example ``negated condition``."""
    before: str
    """Source text of the expression or statement."""
    after: str
    start: int
    """Offset in the module's UTF-8 source, in bytes."""

    @property
    def room(self) -> str:
        """Folder of the module below the product, for example ``connect/source``."""
        return str(self.path.parent.relative_to("operator/headrace"))

    def applied(self, source: bytes) -> bytes:
        """Return the module's source with the fault."""
        end = self.start + len(self.before.encode())
        return source[: self.start] + self.after.encode() + source[end:]

    def diff(self) -> str:
        """Return the fault as a diff without context."""
        source = (ROOT / self.path).read_bytes()
        before, after = (text.decode().splitlines() for text in (source, self.applied(source)))
        name = str(self.path)
        lines = difflib.unified_diff(before, after, name, name, lineterm="", n=1)
        return "\n".join(lines)


def find_mutations(path: Path) -> Iterator[Mutation]:
    """Yield each fault that this tool knows for a module."""
    source = (ROOT / path).read_bytes()
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        end = begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return begins[node.lineno - 1] + node.col_offset, end

    def text(node: ast.expr | ast.stmt) -> str:
        start, end = span(node)
        return source[start:end].decode()

    def mutation(node: ast.expr | ast.stmt, kind: str, after: str) -> Mutation:
        return Mutation(path, node.lineno, kind, text(node), after, span(node)[0])

    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.If(test=test) | ast.While(test=test) if text(test) != "TYPE_CHECKING":
                yield mutation(test, "negated condition", f"not ({text(test)})")
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield mutation(test, "negated condition", f"not ({text(test)})")
                swapped = f"{text(orelse)} if {text(test)} else {text(body)}"
                yield mutation(node, "swapped branches", swapped)
            case ast.Compare(left=left, ops=[op], comparators=right) if type(op) in _OPPOSITES:
                changed = ast.Compare(left, [_OPPOSITES[type(op)]()], right)
                yield mutation(node, "off by one", ast.unparse(changed))
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
                yield mutation(node, "off by one", f"({text(left)})")
            case ast.Expr(value=ast.Call() as call) if not text(call).startswith(_QUIET):
                yield mutation(node, "removed call", "pass")
            case _:
                pass


def draw(seed: int, count: int) -> list[Mutation]:
    """Return ``count`` faults, from each room about as many, in the order of the draw."""
    rooms: defaultdict[str, list[Mutation]] = defaultdict(list)
    for path in sorted(PRODUCT.rglob("*.py")):
        for mutation in find_mutations(path.relative_to(ROOT)):
            rooms[mutation.room].append(mutation)
    chance = random.Random(seed)
    drawn: list[Mutation] = []
    while len(drawn) < count and any(rooms.values()):
        names = sorted(name for name, mutations in rooms.items() if mutations)
        chance.shuffle(names)
        for name in names[: count - len(drawn)]:
            drawn.append(rooms[name].pop(chance.randrange(len(rooms[name]))))
    return drawn


def find_killer(mutation: Mutation, folder: Path) -> str | None:
    """Return the test that finds a fault, or None. ``folder`` is a copy of the repository."""
    module = folder / mutation.path
    source = module.read_bytes()
    module.write_bytes(mutation.applied(source))
    try:
        parts = Path(mutation.room).parts
        rooms = [Path("tests/unit", *parts[:count]) for count in range(len(parts), 0, -1)]
        near = next((room for room in rooms if (folder / room).is_dir()), None)
        if near is not None and (killer := _first_failure(folder, "-m", "not long", str(near))):
            return killer
        return _first_failure(folder, *_CHECK)
    finally:
        module.write_bytes(source)


def _first_failure(folder: Path, *options: str) -> str | None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
    paths = os.pathsep.join(str(folder / name) for name in ("operator", "spark-jobs"))
    try:
        run = subprocess.run(
            [*command, *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the tests did not end"
    if run.returncode == 0:
        return None
    lines = run.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else "the tests did not start"


def main() -> int:
    """Draw, try each, print a table; 1 when a fault was not found."""
    options = _options()
    drawn = draw(options.seed, options.count)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    survivors: list[Mutation] = []
    with tempfile.TemporaryDirectory(prefix="headrace-mutations-") as name:
        folder = Path(name)
        _copy(folder)
        if not options.list and (broken := _first_failure(folder, *_CHECK)):
            console.print(f"The tests fail without a fault, at {broken}: run make check")
            return 2
        for number, mutation in enumerate(drawn, 1):
            killer = "" if options.list else find_killer(mutation, folder) or "NOT FOUND"
            if killer == "NOT FOUND":
                survivors.append(mutation)
            where = f"{mutation.path.relative_to('operator/headrace')}:{mutation.line}"
            console.print(f"{number:>3} {mutation.kind:<18} {where:<48} {killer}", soft_wrap=True)
    for mutation in survivors:
        console.print(f"\n{mutation.diff()}", soft_wrap=True, markup=False)
    if not options.list:
        console.print(f"\n{len(drawn) - len(survivors)} of {len(drawn)} mutations were found")
    return 1 if survivors else 0


def _copy(folder: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder / path.name)
        elif path.name in (".github", ".ci"):
            shutil.copytree(path, folder / path.name)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutations", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--count", type=int, default=40, help="mutations to draw")
    parser.add_argument("--list", action="store_true", help="print what is drawn, and run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
