"""The tests that ``make test`` and ``make test-rest`` select."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tested-features.md"
"""The table of features, which decides what ``make test`` runs after ``make check``."""

CHECKED = {"unit", "property"}
"""Folders of ``make check``."""


def listed() -> dict[str, str]:
    """Return the test of each feature that the page lists, as ``folder/file.py::name``."""
    rows = re.findall(r"(?m)^\| (.+?) \| `([\w/]+\.py::.+)` \|$", PAGE.read_text())
    return dict(rows)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=("features", "rest"),
        help="features: the tests that docs/tested-features.md lists; "
        "rest: all tests that neither this page lists nor `make check` runs",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    if tier is None:
        return
    features = set(listed().values())
    wanted = {
        item: is_listed(item, features) if tier == "features" else is_rest(item, features)
        for item in items
    }
    config.hook.pytest_deselected(items=[item for item in items if not wanted[item]])
    items[:] = [item for item in items if wanted[item]]
    if tier == "features":
        whole = {Path(one).name for one in config.args if "::" not in one and Path(one).is_dir()}
        if absent := unselected(features, [item.nodeid for item in items], whole):
            raise pytest.UsageError(
                f"{PAGE.name} lists tests that do not exist or are marked long; "
                f"correct their rows: {', '.join(absent)}"
            )


def unselected(features: set[str], selected: Iterable[str], folders: set[str]) -> list[str]:
    """Return the listed tests of these folders of which no selected test is one."""
    names = {name.removeprefix("tests/") for name in selected}
    names |= {name.partition("[")[0] for name in names}
    return sorted(one for one in features - names if one.partition("/")[0] in folders)


def is_listed(item: pytest.Item, features: set[str]) -> bool:
    """Return whether the page lists the test, with its parameters or without."""
    if item.get_closest_marker("long"):
        return False
    name = item.nodeid.removeprefix("tests/")
    return name in features or name.partition("[")[0] in features


def is_rest(item: pytest.Item, features: set[str]) -> bool:
    """Return whether neither ``make check`` nor the page has the test."""
    folder = item.nodeid.removeprefix("tests/").partition("/")[0]
    checked = folder in CHECKED and item.get_closest_marker("long") is None
    return not checked and not is_listed(item, features)
