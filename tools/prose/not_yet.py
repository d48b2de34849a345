"""The list of files that are not yet rewritten, which may only shrink.

A line of the list is a path and the number of findings that the file may have. A file that is not
in the list has none. The sum of the numbers never grows from one commit to the next.
"""

import re
from collections.abc import Mapping

from prose.repository import ROOT, git
from prose.rules import Finding

LIST = ROOT / "tools" / "prose" / "not-yet-rewritten.txt"
_PATH = str(LIST.relative_to(ROOT))
_HEAD = """\
# Files that are not yet rewritten in plain English, with the number of findings each may have.
# Numbers and lines may only go down: `PYTHONPATH=tools .venv/bin/python -m prose --lower` (part of
# `make format`) lowers them. For a file that you moved, move its line. Only a new edition of the
# rules may raise them: `python -m prose --new-edition`.
# edition: {edition}
"""


def read(text: str) -> dict[str, int]:
    """Return the number for each path; of two lines for a path the lower number counts."""
    allowed: dict[str, int] = {}
    for path, number in re.findall(r"(?m)^([^#\s]\S*) (\d+)$", text):
        allowed[path] = min(int(number), allowed.get(path, int(number)))
    return allowed


def edition(text: str) -> int:
    """Return the edition of the rules for which the numbers were counted."""
    return max(map(int, re.findall(r"(?m)^# edition: (\d+)$", text)), default=0)


def written(allowed: Mapping[str, int], number: int) -> str:
    """Return the text of the list."""
    lines = [f"{path} {count}\n" for path, count in sorted(allowed.items()) if count]
    return _HEAD.format(edition=number) + "".join(lines)


def lowered(allowed: Mapping[str, int], found: Mapping[str, list[Finding]]) -> dict[str, int]:
    """Return the list without clean or deleted files, with each number at most as it was."""
    return {path: min(count, len(found.get(path, ()))) for path, count in allowed.items()}


def surplus(
    allowed: Mapping[str, int], found: Mapping[str, list[Finding]]
) -> dict[str, list[Finding]]:
    """Return the findings of each file that has more of them than the list allows."""
    return {path: here for path, here in found.items() if len(here) > allowed.get(path, 0)}


def clean(allowed: Mapping[str, int], found: Mapping[str, list[Finding]]) -> list[str]:
    """Return the listed paths whose file has no finding or does not exist."""
    return [path for path in allowed if not found.get(path)]


def growth() -> str | None:
    """Return a sentence if the list is longer than in an earlier commit, else None.

    Commits with another edition of the rules are not compared. A shallow clone compares with the
    commits that it contains.
    """
    text = LIST.read_text()
    total = sum(read(text).values())
    for commit in (git("log", "--format=%H", "--", _PATH) or "").split():
        before = git("show", f"{commit}:{_PATH}") or ""
        least = sum(read(before).values())
        if edition(before) == edition(text) and least < total:
            return (
                f"{_PATH}: allows {total} findings, but {least} in commit {commit[:10]}: "
                "rewrite the new text instead of raising a number"
            )
    return None


def added_lines(path: str) -> set[int]:
    """Return the lines of a file that are not in its version on the main branch, if any."""
    for base in ("origin/main", "main"):
        ancestor = git("merge-base", "HEAD", base)
        if ancestor is not None:
            break
    else:
        return set()
    difference = git("diff", "--unified=0", ancestor.strip(), "--", path) or ""
    lines: set[int] = set()
    for start, count in re.findall(r"(?m)^@@ [^+]*\+(\d+)(?:,(\d+))? @@", difference):
        lines.update(range(int(start), int(start) + int(count or 1)))
    return lines
