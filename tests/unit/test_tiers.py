"""The table of features, by which ``make test`` selects tests."""

import ast
import re
from pathlib import Path

import pytest
from support.tiers import PAGE, is_listed, is_rest, listed, unselected

ROOT = Path(__file__).parents[2]


def functions(file: Path) -> dict[str, bool]:
    """Return the tests of a file, each with whether it is marked ``long`` in all its cases."""
    tree = ast.parse(file.read_text())
    marked = any(
        isinstance(statement, ast.Assign)
        and ast.unparse(statement.targets[0]) == "pytestmark"
        and "pytest.mark.long" in ast.unparse(statement.value)
        for statement in tree.body
    )
    return {
        node.name: marked or "pytest.mark.long" in map(ast.unparse, node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_the_tests_of_the_table_exist_and_are_not_long() -> None:
    """Names with parameters are checked by ``make test``, which knows them: ``unselected``."""
    named = {test.partition("[")[0] for test in listed().values()}
    assert len(named) > 100
    wrong = []
    for test in sorted(named):
        file, _, name = test.partition("::")
        path = ROOT / "tests" / file
        found = functions(path) if path.exists() else {}
        if name not in found or (found[name] and not file.startswith("e2e/")):
            wrong.append(test)
    assert wrong == [], "absent, or marked long"


def test_no_row_of_the_table_is_left_unread() -> None:
    rows = re.findall(r"(?m)^\| (?!feature |---).*\|$", PAGE.read_text())
    assert len(rows) == len(listed())


@pytest.mark.parametrize("mode", ["one"])
def test_a_row_selects_its_test_with_parameters_or_without(
    request: pytest.FixtureRequest, mode: str
) -> None:
    name = "unit/test_tiers.py::test_a_row_selects_its_test_with_parameters_or_without"
    assert is_listed(request.node, {name})
    assert is_listed(request.node, {f"{name}[{mode}]"})
    assert not is_listed(request.node, {f"{name}[two]", "unit/test_tiers.py"})


def test_a_long_test_is_never_a_row_and_always_the_rest(request: pytest.FixtureRequest) -> None:
    name = request.node.nodeid.removeprefix("tests/")
    assert not is_rest(request.node, set()), "make check runs it"
    request.node.add_marker(pytest.mark.long)
    assert not is_listed(request.node, {name})
    assert is_rest(request.node, {name})


@pytest.mark.parametrize(
    "name", ["chart/test_a.py::test_b", "integration/test_a.py::test_b[other]"]
)
def test_a_row_that_selects_nothing_is_named(name: str) -> None:
    found = "integration/test_a.py::test_b"
    rows = {name, found, "unit/test_c.py::test_d", "e2e/test_e.py::test_f"}
    assert unselected(rows, [f"tests/{found}[east]"], {"chart", "integration"}) == [name]


def test_only_folders_that_were_collected_count() -> None:
    assert unselected({"chart/test_a.py::test_b"}, [], {"integration"}) == []
