"""The files of the repository that contain prose, and their findings."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from prose.rules import Finding, findings
from prose.texts import texts

ROOT = Path(__file__).parents[2]
_CACHE = ROOT / ".prose_cache" / "findings.json"
_IN_PROCESSES = 100
"""Number of changed files from which a second process is worth its start."""
_SUFFIXES = {
    *(".py", ".md", ".yaml", ".yml", ".toml", ".tpl", ".txt", ".sh", ".service", ".properties"),
    *(".c", ".h", ".go", ".lua", ".j2", ".html", ".json", ""),
}
_EXCLUDED = re.compile(
    r"LICENSE$|^docs/vendor/|^tools/images/syft\.txt$|\.lock$|go\.txt$"
    r"|^tools/prose/.*\.txt$|^tools/prose/rules\.py$|^tests/unit/prose/test_rules\.py$"
    # Generated from sources that are checked themselves
    r"|^crds/|^charts/headrace/files/(?:crds|dashboards)/|/panels\.json$|/golden/"
    r"|^docs/reference\.md$"
)
_BUILT = re.compile(r"dist|__pycache__|\.git|\.venv|\.hypothesis|\..*_cache|.*\.egg-info")
_PYDOCSTYLE = [
    *(sys.executable, "-m", "ruff", "check", "--quiet", "--exit-zero", "--output-format", "json"),
    *("--select", "D,D401", "--ignore", "D1"),
]


def paths() -> list[str]:
    """Return the paths of the files to check, relative to the root."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard")
    if listed is None:
        listed = "\n".join(_walked())
    return sorted(
        path
        for path in set(listed.splitlines())
        if Path(path).suffix in _SUFFIXES and not _EXCLUDED.search(path) and (ROOT / path).is_file()
    )


def _walked() -> Iterable[str]:
    """Yield all files of a copy that has no git, except in folders that are built or downloaded."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not _BUILT.fullmatch(name)]
        yield from (str(Path(folder, file).relative_to(ROOT)) for file in files)


def git(*arguments: str) -> str | None:
    """Return the output of a git command in the repository, or None if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode()


def found_in(chosen: Iterable[str]) -> dict[str, list[Finding]]:
    """Return the findings of each file, including those of pydocstyle, sorted by line."""
    kept = _read_cache()
    sources = {path: (ROOT / path).read_text(errors="replace") for path in chosen}
    keys = {path: _key(path, source) for path, source in sources.items()}
    missing = [path for path in sources if keys[path] not in kept]
    arguments = missing, [sources[path] for path in missing]
    if len(missing) < _IN_PROCESSES:
        fresh = list(map(found_in_source, *arguments))
    else:
        with ProcessPoolExecutor(2) as pool:
            fresh = list(pool.map(found_in_source, *arguments, chunksize=20))
    for path, found in zip(missing, fresh, strict=True):
        kept[keys[path]] = [[one.line, one.phrase, one.advice] for one in found]
    if missing:
        _write_cache(kept, keys.values())
    result = {path: [Finding(*one) for one in kept[keys[path]]] for path in sources}
    for path, finding in _pydocstyle([path for path in sources if path.endswith(".py")]):
        result[path].append(finding)
    return {path: sorted(found, key=lambda one: one.line) for path, found in result.items()}


def found_in_source(path: str, source: str) -> list[Finding]:
    """Return the findings of our own rules in one file."""
    try:
        return sorted(
            {finding for text in texts(path, source) for finding in findings(text)},
            key=lambda one: one.line,
        )
    except SyntaxError as error:
        return [Finding(error.lineno or 1, "SyntaxError", f"correct the module: {error.msg}")]


def _pydocstyle(chosen: list[str]) -> Iterable[tuple[str, Finding]]:
    """Yield what ruff reports about the form of docstrings, by pyproject.toml's convention."""
    if not chosen:
        return
    done = subprocess.run([*_PYDOCSTYLE, *chosen], cwd=ROOT, capture_output=True, check=True)
    reports: list[dict[str, Any]] = json.loads(done.stdout)
    for one in reports:
        path = str(Path(one["filename"]).relative_to(ROOT))
        yield path, Finding(one["location"]["row"], one["code"], one["message"])


@cache
def _digest_of_rules() -> str:
    modules = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(module.read_bytes() for module in modules)).hexdigest()


def _key(path: str, source: str) -> str:
    """Return the key of a file's findings in the cache: its path, its content and the rules."""
    parts = "\0".join((path, source, _digest_of_rules()))
    return hashlib.sha256(parts.encode()).hexdigest()


def _read_cache() -> dict[str, list[list[Any]]]:
    try:
        kept: dict[str, list[list[Any]]] = json.loads(_CACHE.read_text())
    except (OSError, ValueError):
        return {}
    return kept


def _write_cache(kept: dict[str, list[list[Any]]], used: Iterable[str]) -> None:
    """Keep the findings of the files just checked, without those of older contents."""
    _CACHE.parent.mkdir(exist_ok=True)
    scratch = _CACHE.with_suffix(".tmp")
    scratch.write_text(json.dumps({key: kept[key] for key in used}))
    scratch.replace(_CACHE)
