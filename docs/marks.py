"""Pages with a part that a script writes between two marks."""

from pathlib import Path


def between(page: Path, begin: str, end: str, text: str) -> str:
    """Return the page, with ``text`` between its marks."""
    before, rest = page.read_text().split(begin)
    return f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"
