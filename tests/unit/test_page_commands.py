"""Each block of commands on the pages has a test that runs it, or a reason why none does."""

from pathlib import Path

from support.page_commands import COMMANDS, NotRun, blocks

TESTS = Path(__file__).parents[1]
NOT_RUN = 25
"""Number of blocks that no test runs as they are printed."""


def test_each_block_is_run_or_has_a_reason() -> None:
    by_row = {(page, words): 0 for page, rows in COMMANDS.items() for words in rows}
    for block in blocks():
        rows = [words for words in COMMANDS.get(block.page, ()) if block.text.startswith(words)]
        assert len(rows) == 1, f"{block.page} has other rows than one for: {block.text}"
        by_row[block.page, rows[0]] += 1
    assert {row for row, count in by_row.items() if count != 1} == set(), "a row has no one block"


def test_the_tests_that_run_blocks_exist() -> None:
    for name in {one for one in _rows() if not isinstance(one, NotRun)}:
        file, _, function = name.partition("::")
        assert f"def {function}(" in (TESTS / file).read_text(), name


def test_blocks_that_are_not_run_are_counted() -> None:
    assert sum(isinstance(one, NotRun) for one in _rows()) == NOT_RUN


def _rows() -> list[str]:
    return [one for rows in COMMANDS.values() for one in rows.values()]
