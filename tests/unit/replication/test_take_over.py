"""A take-over with each answer. tests/property/test_fencing.py has every order of two."""

from dataclasses import replace

import pytest
from support.take_over_model import Claim, Identity, Stage, TakeOver

from headrace.replication.progress import OwnerProducer, Progress
from headrace.replication.reconcile import Dropped, Marker, Record, ResumeReason, reconcile

OWN, OLD = Identity(7, 4), Identity(8, 1)
PROGRESS = Claim(epoch=2, source_offset=100, target_offset=500, writer=7)
MARKERS = [Marker(10, 7, 4), Marker(11, 8, 1)]


def fenced(*identities: Identity) -> TakeOver:
    return TakeOver(3).identified(*identities or (OWN,)).added().ended()


def reading_tail(progress: Claim = PROGRESS, *identities: Identity) -> TakeOver:
    return fenced(*identities).progress_read(progress, MARKERS)


@pytest.mark.parametrize(
    ("writer", "wanted"),
    [(OwnerProducer("task", 7, 3), PROGRESS), (None, PROGRESS._replace(writer=-1))],
)
def test_a_claim_of_progress(writer: OwnerProducer | None, wanted: Claim) -> None:
    progress = Progress("s", 100, 0, "t", 500, epoch=2, owner="task")
    assert Claim.of(replace(progress, writer=writer)) == wanted
    left = Claim.of(replace(progress, writer=writer, unfenced=(6, 5)))
    assert left == wanted._replace(unfenced=frozenset({5, 6}))


def test_an_owner_without_a_producer_of_its_own_is_not_fenced() -> None:
    taking = reading_tail(PROGRESS._replace(writer=-1))
    resume = reconcile(taking.stored, [Marker(500, 7, 4)], [], taking.fences)
    assert (resume.outcome, resume.unfenced) == (ResumeReason.UNFENCED, frozenset({-1}))


def test_stages_in_order() -> None:
    taking = reading_tail()
    assert (fenced().stage, taking.stage) == (Stage.PROGRESS, Stage.TAIL)
    tail: list[Record | Dropped | Marker] = [
        Record(500, None, b"a", producer_id=7),
        Marker(501, 7, 4),
    ]
    resume = reconcile(taking.stored, tail, [Record(100, None, b"a")], taking.fences)
    claiming = taking.reconciled(resume)
    assert claiming.stage is Stage.CLAIM
    assert claiming.claim == Claim(epoch=3, source_offset=101, target_offset=502, writer=7)
    assert (claiming.claimed().stage, claiming.nothing_doubled) == (Stage.OPEN, True)


def test_a_marker_that_is_absent_is_asked_for_again_with_the_own_identity() -> None:
    again = fenced().progress_read(PROGRESS, [Marker(10, 7, 3)])
    assert (again.stage, again.identities, again.progress) == (Stage.IDENTIFY, (OWN,), None)
    taking = reading_tail()
    absent = taking.reconciled(reconcile(taking.stored, [], [], taking.fences))
    assert (absent.stage, absent.identities) == (Stage.IDENTIFY, (OWN,))


def test_all_fences_are_awaited() -> None:
    both = fenced(OWN, OLD)
    assert both.fences == {7: 4, 8: 1}
    assert both.progress_read(PROGRESS, MARKERS[:1]).stage is Stage.IDENTIFY
    assert both.progress_read(PROGRESS, MARKERS).stage is Stage.TAIL


def test_another_producer_id_makes_no_promise_and_stays_in_the_claim() -> None:
    taking = reading_tail(PROGRESS._replace(writer=6, unfenced=frozenset({5})))
    resume = reconcile(taking.stored, [Marker(500, 7, 4)], [], taking.fences)
    claiming = taking.reconciled(resume)
    assert resume.outcome is ResumeReason.UNFENCED
    assert (claiming.stage, claiming.nothing_doubled) == (Stage.CLAIM, False)
    assert claiming.claim == Claim(3, 100, 500, writer=7, unfenced=frozenset({5, 6}))


def test_a_later_owner_ends_it() -> None:
    assert reading_tail(PROGRESS._replace(epoch=4)).stage is Stage.REPLACED
    assert TakeOver(3).replaced().stage is Stage.REPLACED
