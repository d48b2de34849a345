"""A class has one meaning in the whole repository."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    file
    for folder in ("operator/headrace", "spark-jobs")
    for file in sorted((ROOT / folder).rglob("*.py"))
]


def test_a_public_class_has_a_name_of_its_own() -> None:
    assert len(SOURCES) > 200
    names = Counter(
        node.name
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
