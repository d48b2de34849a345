"""Progress contains all losses of a partition."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.api import LossAction, LossCause
from headrace.replication import Loss, Progress

LOSSES = st.builds(
    Loss,
    st.sampled_from(LossCause),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(1, 9),
    action=st.sampled_from([LossAction.CONTINUED, LossAction.RESTARTED]),
)


def progress() -> Progress:
    return Progress("s", 3, -1, "t", 3, 1, "me")


@given(st.lists(LOSSES, max_size=80))
def test_every_resolved_loss_stays_covered_within_a_bound(losses: list[Loss]) -> None:
    found = progress()
    for loss in losses:
        found = found.with_loss(loss)
    assert len(found.losses) <= 21
    for loss in losses:
        assert any(
            one.cause is loss.cause
            and one.leaves_gap == loss.leaves_gap
            and one.first <= loss.first
            and one.last >= loss.last
            for one in found.losses
        )
    assert Progress.decode(found.encode()) == found


def test_an_unresolved_loss_is_replaced_by_what_becomes_of_it() -> None:
    stopped = Loss(LossCause.SOURCE_TRUNCATED, 3, 9, 1)
    later = replace(stopped, last=12, action=LossAction.CONTINUED)
    found = progress().with_loss(stopped).with_loss(later)
    assert found.losses == (later,)
    assert found.with_loss(later).losses == (later,)
    other = Loss(LossCause.SOURCE_TRUNCATED, 20, 29, 5)
    assert found.with_loss(other).losses == (later, other)
