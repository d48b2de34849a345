"""What the docstrings below a type's fields say: the fields' descriptions in schemas and pages.

pydantic's ``use_attribute_docstrings`` does the same whenever a type is defined: reading the source
was a fifth of what it took a process to start, and only who writes a schema needs descriptions.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise


def attribute_docstrings(cls: type) -> dict[str, str]:
    """By name of the field, those that it inherits included; none where the source is not
    installed."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("headrace."):
            found |= dict(_below_fields(base))
    return found


def _below_fields(cls: type) -> Iterator[tuple[str, str]]:
    try:
        source = inspect.getsource(cls)
    except OSError:
        return
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in pairwise(definition.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                yield name, inspect.cleandoc(text)
