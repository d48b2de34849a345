"""Mutations of the product's code by ``make mutations``."""

from pathlib import Path

import mutations
import pytest

SOURCE = """
def limited(values, most):
    if len(values) <= most:
        return values
    rest = "more" if most > 1 else "one"
    log.info("cuts", rest=rest)
    values.append("…")
    return values[: most - 1]
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(mutations, "ROOT", tmp_path)
    (tmp_path / "limits.py").write_text(SOURCE)
    return Path("limits.py")


def test_each_kind_of_fault_changes_its_place_only(module: Path) -> None:
    found = {
        (one.kind, one.applied(SOURCE.encode()).decode())
        for one in mutations.find_mutations(module)
    }
    assert found == {
        (kind, SOURCE.replace(before, after))
        for kind, before, after in (
            ("negated condition", "if len(values) <= most:", "if not (len(values) <= most):"),
            ("negated condition", "if most > 1 else", "if not (most > 1) else"),
            ("off by one", "len(values) <= most", "len(values) < most"),
            ("off by one", "if most > 1", "if most >= 1"),
            ("off by one", "most - 1]", "(most)]"),
            ("swapped branches", '"more" if most > 1 else "one"', '"one" if most > 1 else "more"'),
            ("removed call", 'values.append("…")', "pass"),
        )
    }


def test_a_seed_draws_the_same_faults_from_every_room_again() -> None:
    drawn = mutations.draw(seed=7, count=60)
    assert drawn == mutations.draw(seed=7, count=60)
    assert drawn != mutations.draw(seed=8, count=60)
    rooms = {one.room for one in drawn}
    assert rooms >= {"datapath", "connect/source", "controller", "api", "."}
