"""Facts that the target's log proves about its writers."""

from dataclasses import replace

import pytest
from soak.accounts import Stored
from soak.writers import Written, disputes

FIRST, SECOND = (7, 0), (8, 3)
LOG = [
    Written(0, 10, FIRST, 0),
    Written(10, 5, FIRST, 10),
    Written(16, 2, SECOND, 0),  # after a marker
    Written(18, 4, SECOND, 2),
]
CLAIM = Stored(1.0, "task-0", "b/1", 2, 10, 10, SECOND, fencing=True)
PROGRESS = [
    Stored(0.0, "task-0", "a/1", 1, 0, 0, FIRST),
    Stored(0.5, "task-0", "a/1", 1, 10, 10, FIRST),
    CLAIM,
    replace(CLAIM, at_s=1.1, source_offset=15, target_offset=16, fencing=False),
    replace(CLAIM, at_s=2.0, source_offset=21, target_offset=22, fencing=False),
]


def test_one_owner_after_the_other() -> None:
    assert disputes("t-0", LOG, PROGRESS) == []


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ([*LOG, Written(22, 1, FIRST, 15)], "came behind one of another producer"),
        ([*LOG[:3], Written(18, 4, SECOND, 3)], "has sequence 3 instead of 2"),
        ([Written(0, 10, FIRST, 5), *LOG[2:]], "has sequence 5 instead of 0"),
    ],
)
def test_what_contradicts_it_is_said(log: list[Written], sentence: str) -> None:
    (found,) = disputes("t-0", log, PROGRESS)
    assert sentence in found


def test_an_owner_that_takes_another_ones_append_for_its_own() -> None:
    (found,) = disputes(
        "t-0",
        [*LOG, Written(25, 1, (9, 0), 0)],
        [*PROGRESS, replace(PROGRESS[-1], target_offset=26)],
    )
    assert "b/1 stored target offset 25 as acknowledged, which producer (9, 0) appended" in found


def test_sequences_begin_again_behind_the_largest() -> None:
    last = (1 << 31) - 3
    log = [
        Written(0, last, FIRST, 0),
        Written(last, 5, FIRST, last),
        Written(last + 5, 1, FIRST, 2),
    ]
    assert disputes("t-0", log, []) == []
