"""Examples on the pages work as printed, if they need no cluster."""

import re
from pathlib import Path

import pytest

from headrace.api.manifests import load
from headrace.standalone.manifests import refusals

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLOWS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
    if "kind: ReplicationFlow" in block
]


def test_there_are_manifests_on_the_pages() -> None:
    assert len(FLOWS) >= 2


@pytest.mark.parametrize("text", FLOWS)
def test_a_manifest_of_a_page_is_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(text)
    manifest = load([file])
    assert manifest.flows
    assert refusals(manifest) == []


def test_the_site_loads_nothing_from_elsewhere() -> None:
    """The theme loads mermaid from a public server unless one of our scripts has loaded it."""
    settings = (ROOT / "mkdocs.yml").read_text()
    (script,) = re.findall(r"(?m)^extra_javascript: \[(.+)\]$", settings)
    assert 'globalThis["mermaid"]' in (ROOT / script).read_text()[-200:]
    assert "font: false" in settings


def test_headings_that_links_name_exist() -> None:
    """The link checker of the repository's tests checks only files."""
    absent = []
    for page in PAGES:
        for file, heading in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
            target = (page.parent / file) if file else page
            if target.suffix == ".md" and heading not in _headings(target.read_text()):
                absent.append(f"{page.name}: {file}#{heading}")
    assert absent == []


def _headings(text: str) -> set[str]:
    titles = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_tests_that_a_page_names_exist() -> None:
    absent = []
    folders = "unit|property|integration|chart|e2e"
    for page in PAGES:
        named = re.findall(rf"`((?:{folders})/[\w/]+\.py)(?:::(\w+))?`", page.read_text())
        for file, name in named:
            path = ROOT / "tests" / file
            if not path.exists() or (name and f"def {name}(" not in path.read_text()):
                absent.append(f"{page.name}: {file}::{name}")
    assert absent == []


def test_the_glossary_has_few_words() -> None:
    """A word is listed if several pages use it, or the code, and Kafka's documentation does not."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"(?m)^\| (?!word|---)([\w -]+) \|", page)
    assert {"driver", "take-over", "helper in C"} < set(words)
    assert len(words) < 20
