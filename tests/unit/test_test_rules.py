"""Tests use public names only, and replace nothing by its dotted path."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMEDTUPLE = {"_asdict", "_replace"}
"""Public methods, although they begin with an underscore."""
REPLACING = {
    "delattr": ("target", "name"),
    "setattr": ("target", "name", "value"),
    "patch": ("target",),
    "patch.dict": ("in_dict",),
    "patch.multiple": ("target",),
    "patch.object": ("target", "attribute"),
}
"""Functions and methods that replace an attribute, and the parameters that they need for that."""
READING = {"getattr": ("object", "name"), "hasattr": ("object", "name")}
"""Functions that read an attribute by its name, which may be a variable."""
BY_NAME = re.compile(rf"(?s:.*\.)?({'|'.join(map(re.escape, [*REPLACING, *READING]))})")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def breaks_rule(function: str, call: ast.Call) -> bool:
    """Return whether a call has a private name or, to replace something, a path or a variable."""
    needed = (REPLACING | READING)[function]
    given = {one.arg or "": one.value for one in call.keywords}
    given |= dict(zip(needed, call.args, strict=False))
    texts = {
        parameter: value.value
        for parameter, value in given.items()
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    names = needed[1:2]
    private = any(map(is_private, [*given, *(texts.get(one, "") for one in names)]))
    if function in READING:
        return private
    # A path, also in a variable, replaces both the object and the name.
    path = "." in texts.get(needed[0], "") or (len(needed) > 1 and not given.keys() >= {*needed})
    return private or path or not texts.keys() >= {*names}


def violations(source: str) -> Iterator[str]:
    """Yield each expression of a test that accesses a private name or replaces a dotted path."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
                paths = [module, *(one.name for one in names)]
                if any(is_private(part) for path in paths for part in path.split(".")):
                    yield ast.unparse(node)
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                own = ast.unparse(owner) in {"self", "cls", "super()"}
                # The codes of librdkafka's own errors are public: KafkaError._FATAL.
                if not own and name not in NAMEDTUPLE and ast.unparse(owner) != "KafkaError":
                    yield ast.unparse(node)
            case ast.Call(func=ast.Name() | ast.Attribute() as function):
                named = BY_NAME.fullmatch(ast.unparse(function))
                if named and breaks_rule(named[1], node):
                    yield ast.unparse(node)
            case _:
                pass


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("monkeypatch.setattr('a.b.TIMEOUT_S', 1)", 1),
        ("monkeypatch.setattr('a.b.name', 'value')", 1),
        ("monkeypatch.setattr(target='a.b', name=1)", 1),
        ("monkeypatch.setattr(PATH, 1)", 1),
        ("monkeypatch.delattr('a.b.c')", 1),
        ("monkeypatch.delattr('a.b.c', raising=False)", 1),
        ("with mock.patch('a.b'): pass", 1),
        ("mock.patch(target='a.b')", 1),
        ("mock.patch.dict('a.b', {})", 1),
        ("patch.dict(in_dict='a.b')", 1),
        ("patch.multiple('a.b', c=1)", 1),
        ("monkeypatch.setattr(a, '_TIMEOUT_S', 1)", 1),
        ("monkeypatch.setattr(a, name='_b', value=1)", 1),
        ("monkeypatch.delattr(a, '_b')", 1),
        ("patch.object(a, '_b')", 1),
        ("mock.patch.object(a, attribute='_b')", 1),
        ("patch.multiple(a, _b=1)", 1),
        ("setattr(d, n, p)", 1),
        ("monkeypatch.setattr(d, n, p)", 1),
        ("patch.object(d, n)", 1),
        ("getattr(a, '_timeout_s')", 1),
        ("hasattr(a, '_timeout_s')", 1),
        ("from a import _b", 1),
        ("from a._b import c", 1),
        ("from ._a import b", 1),
        ("import a._b", 1),
        ("a._b", 1),
        ("self.a._b", 1),
        ("patch.dict(a._b, {})", 1),
        ("self._b + cls._b + super()._b + a.__doc__", 0),
        ("a._replace(b=1)._asdict()", 0),
        ("KafkaError._FATAL", 0),
        ("from __future__ import annotations", 0),
        ("from a.b import c as _d", 0),
        ("import a.b as _c", 0),
        ("monkeypatch.setattr(a, 'timeout_s', 1)", 0),
        ("monkeypatch.setattr(a, name='b', value='_c')", 0),
        ("monkeypatch.delattr(a, 'b', raising=False)", 0),
        ("setattr(a, 'b', '_c')", 0),
        ("patch.object(a, 'b', '_c')", 0),
        ("patch.dict(a, {'_b': 1})", 0),
        ("patch.multiple(a, b=1)", 0),
        ("patch.setenv('A.B', '_c')", 0),
        ("client.patch(kind, '_name')", 0),
        ("getattr(a, n, '_default')", 0),
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
