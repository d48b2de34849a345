"""Claim, fence, reconcile and append by two owners, in every possible order.

Larger bounds: ``cd tests && python -m property.fencing 2 2 2`` (1.6 million states, two minutes).
"""

from collections.abc import Callable

import pytest
from property.fencing import broken_rules
from property.fencing.model import Model
from property.fencing.state import Running, State, violation
from support.explicit_state import explore
from support.take_over_model import Stage, TakeOver

from headrace.replication.reconcile import ResumeReason


@pytest.mark.parametrize(
    "model",
    [
        Model(records=2, starts=1, faults=1),
        Model(records=1, starts=2, faults=1),
        Model(records=1, starts=1, faults=2),
    ],
)
def test_no_gap_no_duplicate_and_no_progress_ahead(model: Model) -> None:
    found = explore(model.initial(), model.successors, violation)
    assert not found.violation, str(found)
    assert found.states > 10_000


@pytest.mark.parametrize(
    "model",
    [
        broken_rules.MarkerNotReadBack(1, 1, 0),
        broken_rules.HighWatermarkAsEnd(1, 1, 0),
        broken_rules.ClaimBeforeFence(1, 1, 0),
        broken_rules.NewSequence(1, 1, 1),
        broken_rules.AnyProducerId(1, 1, 1),
        broken_rules.UnfencedForgotten(1, 2, 1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_broken_rule_is_found_with_a_trace(model: Model) -> None:
    found = explore(model.initial(), model.successors, violation)
    assert found.violation == "record 0 is doubled", str(found)
    first, *steps, data, progress = str(found).splitlines()
    assert first == f"record 0 is doubled; {found.states} states"
    assert steps[-1].endswith(" arrives: appended")
    assert data.startswith("data: marker 1:0, ")
    assert data.count("record 0 by ") == 2
    assert progress.startswith("progress: marker 1:0, progress(0->1) by 1:0")


def owners(state: State) -> list[TakeOver]:
    return [owner for owner in state.owners if isinstance(owner, TakeOver)]


def read_back(state: State, outcome: ResumeReason, copied: int) -> bool:
    resumes = [owner.resume for owner in owners(state) if owner.resume]
    return any(resume.outcome is outcome and resume.copied == copied for resume in resumes)


SMALL, MORE_STARTS = Model(2, 1, 1), Model(1, 2, 1)
REACHED: dict[str, tuple[Model, Callable[[State], bool]]] = {
    "an empty tail": (SMALL, lambda state: read_back(state, ResumeReason.AGREES, 0)),
    "a tail": (SMALL, lambda state: read_back(state, ResumeReason.AGREES, 2)),
    "another producer id": (SMALL, lambda state: read_back(state, ResumeReason.UNFENCED, 0)),
    "a marker that is lost": (
        SMALL,
        lambda state: any(o.stage is Stage.IDENTIFY and o.identities for o in owners(state)),
    ),
    "an owner that is late": (
        MORE_STARTS,
        lambda state: any(o.stage is Stage.REPLACED for o in owners(state)),
    ),
    "a zombie": (SMALL, lambda state: all(isinstance(owner, Running) for owner in state.owners)),
    "a marker above the high watermark": (
        SMALL,
        lambda state: state.data.lagging and state.data.log[-1].content is None,
    ),
}


@pytest.mark.parametrize("what", REACHED)
def test_the_model_reaches(what: str) -> None:
    model, reached = REACHED[what]
    found = explore(model.initial(), model.successors, lambda state: what * reached(state))
    assert found.violation == what
