"""A check of commit subjects: area, imperative, at most 72 characters."""

import re
from collections.abc import Iterator
from pathlib import Path

from prose.repository import git

MOST_CHARACTERS = 72
_VERBS = Path(__file__).with_name("verbs.txt")
_INTRODUCED = "tools/prose/verbs.txt"
_SUBJECT = re.compile(r"[a-z0-9][\w./, -]*: (?P<verb>\S+)(?: \S.*)?$")
_BY_GIT = re.compile(r'Revert ".*"$|Reapply ".*"$')


def verbs() -> set[str]:
    """Return the verbs that a subject may start with."""
    lines = _VERBS.read_text().splitlines()
    return {verb for line in lines if not line.startswith("#") for verb in line.split()}


def faults(message: str) -> Iterator[str]:
    """Yield a sentence for each fault in the form of a commit message."""
    subject, _, rest = message.strip().partition("\n")
    if _BY_GIT.match(subject):
        return
    if len(subject) > MOST_CHARACTERS:
        yield f"has {len(subject)} characters: shorten it to {MOST_CHARACTERS}"
    if subject.endswith("."):
        yield "ends with a full stop: remove it"
    if rest and not rest.startswith("\n"):
        yield "is not followed by a blank line: add it"
    found = _SUBJECT.match(subject)
    if not found:
        yield "has no area and verb: write it like `movers: stamp spans in one call`"
    elif found["verb"] not in verbs():
        yield (
            f"does not open with an imperative: {found['verb']!r} is not one of the verbs in "
            "tools/prose/verbs.txt (add it there if it is a verb)"
        )


def checked() -> tuple[list[str], str | None]:
    """Return the faults of the commits since this check exists, and why some are not checked."""
    first = (git("log", "--diff-filter=A", "--format=%H", "--", _INTRODUCED) or "").split()
    if git("rev-parse", "HEAD") is None:
        return [], "no git repository here: commit subjects are not checked"
    if not first:
        return [], f"no commit adds {_INTRODUCED}: commit subjects are not checked"
    log = git("log", "--no-merges", "--format=%h%x00%B%x01", f"{first[-1]}^!", "HEAD") or ""
    commits = (entry.strip().partition("\0") for entry in log.split("\x01") if entry.strip())
    found = [
        f"commit {commit}: {message.splitlines()[0]!r} {fault}"
        for commit, _, message in commits
        for fault in faults(message)
    ]
    shallow = (git("rev-parse", "--is-shallow-repository") or "").strip() == "true"
    return found, "shallow clone: older commit subjects are not checked" if shallow else None
