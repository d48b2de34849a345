"""The state diagrams of the architecture page equal the tables of states in the code."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.connect.runtime.lifecycle import TRANSITIONS as UNIT
from headrace.datapath.partition import TRANSITIONS as PARTITION
from headrace.datapath.transactions import STAGES

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("The life of a unit", UNIT),
        ("The states of a partition", PARTITION),
        ("The stages of a transaction", STAGES),
    ],
)
def test_the_page_draws_the_table(heading: str, table: Mapping[Any, Collection[Any]]) -> None:
    section = re.split(r"(?m)^#+ ", PAGE.read_text().split(f"# {heading}\n", 1)[1])[0]
    drawn = re.findall(r"(?m)^  ([A-Z]\w+) --> ([A-Z]\w+)$", section)
    assert sorted(drawn) == sorted(
        (before.value, after.value) for before in table for after in table[before]
    )
