"""Transactions over data and progress, in every order, commit each record once."""

from collections.abc import Callable

import pytest
from property.exactly_once import DATA, Log, Model, Owner, State, committed, stable_end, violation
from support.explicit_state import explore


@pytest.mark.parametrize(
    "model",
    [Model(2, 2, 2), Model(1, 3, 1), pytest.param(Model(2, 3, 1), marks=pytest.mark.long)],
)
def test_a_reader_of_committed_records_gets_each_once_and_in_order(model: Model) -> None:
    found = explore(model.initial(), model.successors, violation)
    assert not found.violation, str(found)
    assert found.states > 1_000


class AnyProgressCounts(Model):
    def stored(self, log: Log) -> tuple[int, int]:
        stored = [one.content for one in log if isinstance(one.content, tuple)]
        return stored[-1] if stored else (0, 0)


class AnyTailCounts(Model):
    def copied(self, log: Log, since: int) -> int:
        return sum(not one.marker for one in log[since:])


class NoTailCounts(Model):
    def copied(self, log: Log, since: int) -> int:
        return 0


class OnlyDataIsFenced(Model):
    fenced = frozenset({DATA})


class LeftoverIsAborted(Model):
    def leftover(self, state: State, stored: tuple[int, int]) -> bool:
        return False


class LeftoverStays(Model):
    def all_ended(self, state: State) -> bool:
        return True


class GuessedAborted(Model):
    def unanswered(self, owner: Owner) -> Owner:
        return owner._replace(stage="run", next=owner.stored[0])


@pytest.mark.parametrize(
    "model",
    [
        AnyProgressCounts(2, 2, 2),
        AnyTailCounts(2, 2, 2),
        NoTailCounts(2, 2, 2),
        OnlyDataIsFenced(2, 3, 1),
        LeftoverIsAborted(2, 2, 2),
        LeftoverStays(2, 2, 2),
        GuessedAborted(2, 1, 1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_broken_rule_is_found(model: Model) -> None:
    found = explore(model.initial(), model.successors, violation)
    assert found.violation.startswith("read ["), str(found)


REACHED: dict[str, Callable[[State], bool]] = {
    "all is copied": lambda state: sum(committed(state.logs[DATA]).values()) == 2,
    "a leftover": lambda state: (
        not state.pending
        and not state.added
        and stable_end(state.logs[DATA]) < len(state.logs[DATA])
    ),
    "a zombie": lambda state: {one and one.stage for one in state.owners} == {"copy", "run"},
    "an aborted record": lambda state: False in committed(state.logs[DATA]).values(),
}


@pytest.mark.parametrize("what", REACHED)
def test_the_model_reaches(what: str) -> None:
    model = Model(2, 2, 2)
    found = explore(model.initial(), model.successors, lambda state: what * REACHED[what](state))
    assert found.violation == what
