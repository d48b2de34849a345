"""Extraction of the prose from a file: docstrings, comments, messages, paragraphs."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath


class Kind(StrEnum):
    """The role of a text, which decides the rules that apply to it."""

    DOCSTRING = "docstring"
    """Docstring of a module, a class or a function."""
    ATTRIBUTE = "attribute"
    """String below an assignment, which documents the assigned name."""
    HELP = "help"
    """Description of a command-line option or a metric."""
    MESSAGE = "message"
    """String literal of several words in the product or in a tool."""
    COMMENT = "comment"
    """Comment, or a block of comments on consecutive lines."""
    PARAGRAPH = "paragraph"
    """Paragraph of a page."""
    ITEM = "item"
    """Item of a list on a page."""
    CELL = "cell"
    """Cell of a table on a page."""
    HEADING = "heading"
    """Heading of a page, or the header of a table's column."""
    RAW = "raw"
    """Whole content of a file that is neither Python nor Markdown."""


@dataclass(frozen=True)
class Text:
    """A piece of prose with the line of the file on which it starts."""

    kind: Kind
    line: int
    content: str
    """Prose with its line breaks, without comment signs."""


_HELP_KEYWORDS = {"help", "short_help", "epilog", "description"}
_HELP_CALLS = {"Described"}
_HASH = {".yaml", ".yml", ".toml", ".sh", ".service", ".tpl", ".txt", ".properties"}
_SLASHES = {".c", ".h", ".go"}
_DIRECTIVE = re.compile(r"!|\s*(?:type:|noqa|pragma|fmt:|ruff:|mypy:|-\*-)")
_PYTHON_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r"|'''(?:\\.|[^\\])*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|(?P<comment>\#[^\n]*)",
    re.DOTALL,
)
_HASH_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#+(?=\s)(?P<comment>[^\n]*)")
_SLASH_COMMENT = re.compile(r"(?s)/\*(?P<block>.*?)\*/|(?m:(?:^|(?<=\s))//(?P<comment>[^\n]*))")
_GENERATED = re.compile(r"(?s)<!-- (\w+): written by .*?<!-- \1: end -->")
_HTML_COMMENT = re.compile(r"(?s)<!--.*?-->")
_FENCE = re.compile(r"(?ms)^ *(```+|~~~+).*?^ *\1[^\n]*$")
_FRONT_MATTER = re.compile(r"(?s)\A---\n.*?\n---\n")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_ITEM_START = re.compile(r"(?m)^(?=\s*(?:[-*+]|\d+\.)\s)")


def texts(path: str, source: str) -> Iterator[Text]:
    """Yield the texts of a file.

    Args:
        path: Path relative to the root of the repository. String literals of tests are data, not
            prose, and are left out.
        source: Content of the file.
    """
    suffix = PurePosixPath(path).suffix
    if suffix == ".py":
        yield from _python(source, with_messages=not path.startswith("tests/"))
    elif suffix == ".md":
        yield from _page(source)
    else:
        yield Text(Kind.RAW, 1, source)
        if suffix in _SLASHES:
            yield from _comments(source, _SLASH_COMMENT)
        elif suffix in _HASH or not suffix:
            yield from _comments(source, _HASH_COMMENT)


def _python(source: str, *, with_messages: bool) -> Iterator[Text]:
    tree = ast.parse(source)
    documented: set[int] = set()
    for kind, value in _docstrings(tree):
        documented.add(id(value))
        yield Text(kind, value.lineno, str(value.value))
    yield from _comments(source, _PYTHON_TOKEN)
    if with_messages:
        yield from _strings(tree, documented, Kind.MESSAGE)


def _docstrings(node: ast.AST) -> Iterator[tuple[Kind, ast.Constant]]:
    """Yield the docstrings and attribute docstrings below a node, without visiting expressions."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        statements = getattr(node, field, None)
        if not isinstance(statements, list):
            continue
        for before, child in zip([None, *statements], statements, strict=False):
            match child:
                case ast.Expr(value=ast.Constant(value=str()) as value):
                    if before is None and field == "body":
                        yield Kind.DOCSTRING, value
                    elif isinstance(before, ast.Assign | ast.AnnAssign):
                        yield Kind.ATTRIBUTE, value
                case _:
                    yield from _docstrings(child)


def _strings(node: ast.AST, documented: set[int], kind: Kind) -> Iterator[Text]:
    """Yield the string literals below a node, except docstrings and single words."""
    match node:
        case ast.Constant(value=str(content)):
            if id(node) not in documented and " " in content.strip():
                yield Text(kind, node.lineno, content)
        case ast.JoinedStr(values=values):
            parts = [getattr(part, "value", "X") for part in values]
            whole = "".join(part if isinstance(part, str) else "X" for part in parts)
            yield from _strings(_constant_at(node, whole), documented, kind)
            for value in values:
                if isinstance(value, ast.FormattedValue):
                    yield from _strings(value.value, documented, Kind.MESSAGE)
        case ast.Call(func=func, args=args, keywords=keywords):
            name = func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")
            yield from _strings(func, documented, kind)
            of_arguments = Kind.HELP if name in _HELP_CALLS else Kind.MESSAGE
            for argument in args:
                yield from _strings(argument, documented, of_arguments)
            for keyword in keywords:
                is_help = keyword.arg in _HELP_KEYWORDS
                one = Kind.HELP if is_help else of_arguments
                yield from _strings(keyword.value, documented, one)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _strings(child, documented, kind)


def _constant_at(node: ast.expr, content: str) -> ast.Constant:
    return ast.copy_location(ast.Constant(content), node)


def _comments(source: str, pattern: re.Pattern[str]) -> Iterator[Text]:
    """Yield the comments of a file; whole-line comments on consecutive lines are one text."""
    block: list[str] = []
    begin = last = -1
    line, counted = 1, 0
    for found in pattern.finditer(source):
        groups = found.groupdict()
        content = groups["comment"]
        line += source.count("\n", counted, found.start())
        counted = found.start()
        if content is None:
            if groups.get("block"):
                yield Text(Kind.COMMENT, line, re.sub(r"(?m)^[ \t]*\*", "", groups["block"]))
            continue
        content = content.lstrip("#").removeprefix(" -- ")
        alone = not source[source.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
        if not alone or line != last + 1:
            if block:
                yield Text(Kind.COMMENT, begin, "\n".join(block))
            block, begin = [], line
        if not _DIRECTIVE.match(content):
            block.append(content)
        last = line if alone else -1
    if block:
        yield Text(Kind.COMMENT, begin, "\n".join(block))


def _page(source: str) -> Iterator[Text]:
    """Yield the paragraphs, list items, table cells and headings of a Markdown page."""
    for pattern in (_FRONT_MATTER, _GENERATED, _HTML_COMMENT, _FENCE):
        source = pattern.sub(lambda found: "\n" * found.group().count("\n"), source)
    line = 1
    for part in re.split(r"(\n[ \t]*(?=\n))", source):
        for block in _ITEM_START.split(part):
            yield from _block(line, block)
            line += block.count("\n")


def _block(line: int, block: str) -> Iterator[Text]:
    content = block.lstrip("\n")
    line += len(block) - len(content)
    rows = content.splitlines()
    if not content.strip():
        return
    if content.lstrip().startswith("|"):
        for number, row in enumerate(rows):
            is_header = number + 1 < len(rows) and re.fullmatch(r"[\s|:-]+", rows[number + 1])
            kind = Kind.HEADING if is_header else Kind.CELL
            for cell in re.split(r"(?<!\\)\|", row.strip().strip("|")):
                yield Text(kind, line + number, cell.strip())
    elif content.startswith("#"):
        yield Text(Kind.HEADING, line, rows[0].lstrip("# "))
        yield from _block(line + 1, "\n".join(rows[1:]))
    elif item := _ITEM.match(content):
        yield Text(Kind.ITEM, line, content[item.end() :])
    else:
        yield Text(Kind.PARAGRAPH, line, content)
