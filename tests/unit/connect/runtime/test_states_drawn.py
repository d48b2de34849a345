"""The diagram in the architecture page equals the table of states."""

import re
from pathlib import Path

from headrace.connect.runtime.lifecycle import TRANSITIONS

PAGE = Path(__file__).parents[4] / "docs" / "architecture.md"


def test_the_page_draws_the_table() -> None:
    drawn = re.findall(r"(?m)^  ([A-Z]\w+) --> ([A-Z]\w+)$", PAGE.read_text())
    table = [(before.value, after.value) for before in TRANSITIONS for after in TRANSITIONS[before]]
    assert sorted(drawn) == sorted(table)
