"""Release notes are a section of the changelog."""

import pytest
from release_notes import ReleaseError, notes

CHANGELOG = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2027-01-01

### Added

- Two.

## 0.1.0

- One.

[0.2.0]: https://example.org
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    assert notes("0.2.0", "0.2.0", CHANGELOG) == "### Added\n\n- Two.\n"
    assert notes("0.1.0", "0.1.0", CHANGELOG) == "- One.\n"


def test_a_tag_of_another_version_is_rejected() -> None:
    with pytest.raises(
        ReleaseError, match=r"^the tag is v0\.3\.0, but pyproject\.toml has version"
    ):
        notes("0.3.0", "0.2.0", CHANGELOG)


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "Unreleased"])
def test_a_version_without_text_is_rejected(version: str) -> None:
    with pytest.raises(ReleaseError, match="has no text below"):
        notes(version, version, CHANGELOG)
