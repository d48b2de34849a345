"""Command: ``python -m prose`` checks the repository, ``python -m prose FILE`` lists findings."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from prose import commits, not_yet
from prose.repository import ROOT, found_in, paths
from prose.rules import Finding

_LOWER = "PYTHONPATH=tools .venv/bin/python -m prose --lower"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m prose", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="files whose findings to list")
    parser.add_argument("--lower", action="store_true", help="lower the numbers of the list")
    parser.add_argument(
        "--new-edition", action="store_true", help="count all findings again, after a new rule"
    )
    parser.add_argument(
        "--message", type=Path, metavar="FILE", help="file of a commit message to check"
    )
    chosen = parser.parse_args(arguments)
    if chosen.message:
        return _check_message(chosen.message.read_text())
    if chosen.files:
        return _list([str(Path(file).resolve().relative_to(ROOT)) for file in chosen.files])
    if chosen.lower or chosen.new_edition:
        return _rewrite(new_edition=chosen.new_edition)
    problems, notes = check()
    _print([*notes, *problems])
    return 1 if problems else 0


def check() -> tuple[list[str], list[str]]:
    """Return the problems of the repository's prose and notes for the reader."""
    allowed = not_yet.read(not_yet.LIST.read_text())
    found = found_in(paths())
    problems, note = commits.checked()
    for path, findings in not_yet.surplus(allowed, found).items():
        problems += _explained(path, findings, allowed.get(path, 0))
    for path in not_yet.clean(allowed, found):
        problems.append(
            f"{path}: is clean or does not exist: remove it from the list by `{_LOWER}`"
        )
    if (growth := not_yet.growth()) is not None:
        problems.append(growth)
    total = sum(min(len(found.get(path, ())), count) for path, count in allowed.items())
    summary = f"prose: {len(found)} files; {len(allowed)} not yet rewritten, with {total} findings"
    return problems, [summary, *([note] if note else [])]


def _explained(path: str, findings: list[Finding], allowed: int) -> list[str]:
    """Return the findings of a file; only those on new lines, if the list allows some."""
    if allowed:
        added = not_yet.added_lines(path)
        findings = [one for one in findings if one.line in added] or findings
        return [
            f"{path}:{one} (the list allows {allowed} in this file, it has more)"
            for one in findings
        ]
    return [f"{path}:{one}" for one in findings]


def _list(chosen: list[str]) -> int:
    findings = found_in(chosen)
    _print(f"{path}:{one}" for path, found in findings.items() for one in found)
    return 1 if any(findings.values()) else 0


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _check_message(text: str) -> int:
    """Check the message of a commit that is about to be made, as a hook of git passes it."""
    message = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    faults = list(commits.faults(message))
    _print(f"commit subject {fault}" for fault in faults)
    return 1 if faults else 0


def _rewrite(*, new_edition: bool) -> int:
    text, found = not_yet.LIST.read_text(), found_in(paths())
    if new_edition:
        counts = {path: len(findings) for path, findings in found.items()}
        text = not_yet.written(counts, not_yet.edition(text) + 1)
    else:
        counts = not_yet.lowered(not_yet.read(text), found)
        text = not_yet.written(counts, not_yet.edition(text))
    not_yet.LIST.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
