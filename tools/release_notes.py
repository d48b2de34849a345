"""Print a version's section of the changelog: ``python tools/release_notes.py 0.1.0``."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


class ReleaseError(Exception):
    """The version cannot be released; the message says why."""


def notes(version: str, project: str, changelog: str) -> str:
    """Return the changelog's text about a version.

    Args:
        version: Version to release.
        project: Version in ``pyproject.toml``.
        changelog: Content of ``CHANGELOG.md``.

    Raises:
        ReleaseError: If the versions differ, or the changelog has no text about the version.
    """
    if version != project:
        raise ReleaseError(
            f"the tag is v{version}, but pyproject.toml has version {project}: change one of them"
        )
    heading = rf"## \[?{re.escape(version)}\]?"
    found = re.search(
        rf"(?ms)^{heading}(?:[ \t-][^\n]*)?\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)", changelog
    )
    if found is None or not found[1].strip():
        raise ReleaseError(
            f"CHANGELOG.md has no text below `## [{version}]`: rename its section Unreleased"
        )
    return found[1].strip() + "\n"


def main() -> None:
    """Print the notes of the version that the first argument names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/release_notes.py VERSION")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        sys.stdout.write(notes(sys.argv[1], project, (ROOT / "CHANGELOG.md").read_text()))
    except ReleaseError as error:
        sys.exit(f"headrace: {error}")


if __name__ == "__main__":
    main()
