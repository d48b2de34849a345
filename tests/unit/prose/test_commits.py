"""The form of commit messages."""

import pytest
from prose.commits import faults, verbs

GOOD = [
    "movers: stamp spans in one call",
    "kafka/wire, movers: reject a batch of another length\n\nThe broker does.",
    "fail-over: keep the groups of a paused flow",
    'Revert "movers: stamp spans in one call"',
]
BAD = [
    ("Words", "has no area and verb"),
    ("Read again: waits are worked out once a round", "has no area and verb"),
    ("movers: stamps spans in one call", "does not open with an imperative: 'stamps'"),
    ("movers: stamped spans in one call", "does not open with an imperative: 'stamped'"),
    ("docs: the mirror test's comparison", "does not open with an imperative: 'the'"),
    ("movers: stamp spans in one call.", "ends with a full stop"),
    ("movers: stamp spans\nin one call", "is not followed by a blank line"),
    (f"movers: stamp {'x' * 70}", "has 84 characters: shorten it to 72"),
]


@pytest.mark.parametrize("message", GOOD)
def test_an_imperative_with_its_area_is_accepted(message: str) -> None:
    assert list(faults(message)) == []


@pytest.mark.parametrize(("message", "fault"), BAD)
def test_other_subjects_are_rejected(message: str, fault: str) -> None:
    (found,) = faults(message)
    assert found.startswith(fault)


def test_the_list_has_verbs_in_the_imperative_only() -> None:
    forms = {f"{verb}{ending}" for verb in verbs() for ending in ("s", "es", "ed", "ing")}
    assert verbs() & forms <= {"embed", "exceed", "feed", "need", "seed", "speed"}
    assert {"add", "fix", "remove", "test"} < verbs()
