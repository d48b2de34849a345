"""Extraction of texts from Python modules, pages and other files."""

from prose.texts import Kind, Text, texts

MODULE = '''\
"""Module."""

import click

LIMIT = 5  # unit: records
"""Most records."""


# First line
# second line
@click.option("--quiet", help="Idle time.")
def run(name: str) -> None:
    """Run.

    Details.
    """
    x = 1  # noqa: E501
    raise ValueError(f"no flow {name!r} # here")
'''


def extracted(path: str, source: str) -> set[Text]:
    return set(texts(path, source))


def test_a_module_has_docstrings_comments_help_and_messages() -> None:
    assert extracted("operator/headrace/module.py", MODULE) == {
        Text(Kind.DOCSTRING, 1, "Module."),
        Text(Kind.COMMENT, 5, " unit: records"),
        Text(Kind.ATTRIBUTE, 6, "Most records."),
        Text(Kind.COMMENT, 9, " First line\n second line"),
        Text(Kind.HELP, 11, "Idle time."),
        Text(Kind.DOCSTRING, 13, "Run.\n\n    Details.\n    "),
        Text(Kind.MESSAGE, 18, "no flow X # here"),
    }


def test_string_literals_of_tests_are_data() -> None:
    kinds = {text.kind for text in texts("tests/unit/test_module.py", MODULE)}
    assert kinds == {Kind.DOCSTRING, Kind.ATTRIBUTE, Kind.COMMENT}


def test_a_page_has_paragraphs_items_cells_and_headings() -> None:
    page = (
        "# Title\n\nFirst line\nsecond line.\n\n- item one\n- item two\n  goes further\n\n"
        "| head |\n| --- |\n| cell \\| one |\n\n```bash\nit goes on\n```\nLast.\n"
    )
    found = {(one.kind, one.line, one.content.strip()) for one in texts("docs/page.md", page)}
    assert found == {
        (Kind.HEADING, 1, "Title"),
        (Kind.PARAGRAPH, 3, "First line\nsecond line."),
        (Kind.ITEM, 6, "item one"),
        (Kind.ITEM, 7, "item two\n  goes further"),
        (Kind.HEADING, 10, "head"),
        (Kind.CELL, 11, "---"),
        (Kind.CELL, 12, "cell \\| one"),
        (Kind.PARAGRAPH, 17, "Last."),
    }


def test_generated_parts_of_a_page_are_left_out() -> None:
    page = "One.\n\n<!-- rooms: written by x.py -->\n\nIt goes on.\n\n<!-- rooms: end -->\n\nTwo.\n"
    found = [(one.line, one.content.strip()) for one in texts("docs/page.md", page)]
    assert found == [(1, "One."), (9, "Two.")]


def test_comments_of_charts_and_of_c_are_found() -> None:
    values = "# -- Image.\n# Its tag.\nimage: 'a#b'  # the name\n"
    assert {(one.line, one.content) for one in texts("values.yaml", values)} == {
        (1, values),
        (1, "Image.\n Its tag."),
        (3, " the name"),
    }
    helper = "/* Joins\n * batches. */\nint x; // a number\n"
    assert {(one.line, one.content) for one in texts("join.c", helper)} == {
        (1, helper),
        (1, " Joins\n batches. "),
        (3, " a number"),
    }
