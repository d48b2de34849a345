"""Command: ``python -m prose`` checks the repository, ``python -m prose FILE`` lists findings."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prose import commits
from prose.repository import ROOT, found_in, paths
from prose.rules import Finding


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m prose", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="files whose findings to list")
    parser.add_argument(
        "--message", type=Path, metavar="FILE", help="file of a commit message to check"
    )
    chosen = parser.parse_args(arguments)
    if chosen.message:
        return _check_message(chosen.message.read_text())
    if chosen.files:
        return _list([str(Path(file).resolve().relative_to(ROOT)) for file in chosen.files])
    problems, notes = check()
    _print([*notes, *problems])
    return 1 if problems else 0


def check() -> tuple[list[str], list[str]]:
    """Return the problems of the repository's prose and notes for the reader."""
    found = found_in(paths())
    problems, note = commits.checked()
    problems += _lines(found)
    return problems, [f"prose: {len(found)} files", *([note] if note else [])]


def _list(chosen: list[str]) -> int:
    lines = _lines(found_in(chosen))
    _print(lines)
    return 1 if lines else 0


def _lines(found: Mapping[str, Sequence[Finding]]) -> list[str]:
    return [f"{path}:{one}" for path, findings in found.items() for one in findings]


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _check_message(text: str) -> int:
    """Check the message of a commit that is about to be made, as a hook of git passes it."""
    message = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    faults = list(commits.faults(message))
    _print(f"commit subject {fault}" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
