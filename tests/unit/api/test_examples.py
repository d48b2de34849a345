"""Examples that a newcomer copies are valid, and nothing in them is rejected."""

from pathlib import Path

import pytest

from headrace.api import load
from headrace.standalone.manifests import refusals

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = sorted(
    file for folder in (".", "chaos", "mirrors") for file in (FOLDER / folder).glob("*.yaml")
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid_and_runs(example: Path) -> None:
    manifest = load([example])
    assert manifest.objects
    assert refusals(manifest) == []


def test_there_are_examples() -> None:
    assert EXAMPLES
