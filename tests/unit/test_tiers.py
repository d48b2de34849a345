"""The table of features, by which ``make test`` selects tests."""

import re
import subprocess
import sys
from pathlib import Path

from support.tiers import CHECKED, PAGE, listed

ROOT = Path(__file__).parents[2]
BY_ROW = ("tests/chart", "tests/integration")
"""Folders of which ``make test`` runs what the table lists."""


def collected(*arguments: str) -> set[str]:
    """Return the names of the tests that pytest collects, as the table writes them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"(?m)^tests/(\S+\.py::.+)$", done.stdout))


def without_parameters(names: set[str]) -> set[str]:
    return {name.partition("[")[0] for name in names}


def test_the_table_names_what_make_test_runs() -> None:
    named = {
        test for test in listed().values() if test.partition("/")[0] in {"chart", "integration"}
    }
    selected = collected("--tier=features", *BY_ROW)
    assert named - selected - without_parameters(selected) == set(), "absent, or marked long"
    assert {name for name in selected if not {name, name.partition("[")[0]} & named} == set()


def test_other_tests_of_the_table_exist() -> None:
    named = {test for test in listed().values() if test.partition("/")[0] in {*CHECKED, "e2e"}}
    assert len(named) > 20
    absent = []
    for test in named:
        file, _, name = test.partition("::")
        path = ROOT / "tests" / file
        if not path.exists() or f"def {name}(" not in path.read_text():
            absent.append(test)
    assert absent == []


def test_no_row_of_the_table_is_left_unread() -> None:
    rows = re.findall(r"(?m)^\| (?!feature |---).*\|$", PAGE.read_text())
    assert len(rows) == len(listed())
