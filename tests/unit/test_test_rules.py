"""Tests use public names only, and replace nothing by its dotted path."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMEDTUPLE = {"_asdict", "_replace"}
"""Public methods, although they begin with an underscore."""
BY_NAME = {"delattr", "getattr", "hasattr", "setattr"}
"""Functions and methods that access an attribute by its name."""


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def violations(source: str) -> Iterator[str]:
    """Yield each expression of a test that accesses a private name or replaces a dotted path."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(names=names):
                yield from (f"import {one.name}" for one in names if is_private(one.name))
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                own = ast.unparse(owner) in {"self", "cls", "super()"}
                # The codes of librdkafka's own errors are public: KafkaError._FATAL.
                if not own and name not in NAMEDTUPLE and ast.unparse(owner) != "KafkaError":
                    yield ast.unparse(node)
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=args):
                constants = [one.value for one in args if isinstance(one, ast.Constant)]
                if function in BY_NAME and any(map(is_private, constants)):
                    yield ast.unparse(node)
                path = args[0].value if args and isinstance(args[0], ast.Constant) else None
                if function in {"patch", "setattr"} and isinstance(path, str) and "." in path:
                    yield ast.unparse(node)
            case _:
                pass


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("monkeypatch.setattr('a.b.TIMEOUT_S', 1)", 1),
        ("with mock.patch('a.b'): pass", 1),
        ("monkeypatch.setattr(a, '_TIMEOUT_S', 1)", 1),
        ("getattr(a, '_timeout_s')", 1),
        ("from a import _b", 1),
        ("a._b", 1),
        ("self.a._b", 1),
        ("self._b + cls._b + super()._b + a.__doc__", 0),
        ("a._replace(b=1)._asdict()", 0),
        ("KafkaError._FATAL", 0),
        ("monkeypatch.setattr(a, 'timeout_s', 1)", 0),
    ],
)
def test_rule(source: str, count: int) -> None:
    assert len(list(violations(source))) == count


def test_tests_access_no_private_names_and_replace_no_dotted_paths() -> None:
    files = sorted(TESTS.rglob("*.py"))
    assert len(files) > 300
    found = [
        f"{file.relative_to(TESTS)}: {one}"
        for file in files
        for one in violations(file.read_text())
    ]
    assert found == []
