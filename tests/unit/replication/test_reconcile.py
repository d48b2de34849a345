"""Offset at which a copy resumes, with the smallest case of each outcome."""

from collections.abc import Iterator

import pytest

from headrace.replication import ContiguousRange
from headrace.replication.reconcile import (
    Accounts,
    Dropped,
    Marker,
    Record,
    Resume,
    ResumeReason,
    StoredProgress,
    reconcile,
)

OLD, OTHER, FOREIGN = 7, 8, 66
STORED = StoredProgress(100, 500, frozenset({OLD}))
FENCES = {OLD: 3}
Source = list[Record | Dropped]
Tail = list[Record | Dropped | Marker]


def source(offset: int, value: bytes | None = None, timestamp_ms: int = 0) -> Record:
    value = value or b"%d" % offset
    return Record(offset, b"key", value, (("name", b"content"),), timestamp_ms)


def copy(offset: int, of: Record, producer_id: int = OLD) -> Record:
    return of._replace(offset=offset, producer_id=producer_id)


def fence(offset: int, epoch: int = 3) -> Marker:
    return Marker(offset, OLD, epoch)


def stored_position(resume: Resume) -> bool:
    return (resume.source_offset, resume.copied, resume.runs) == (100, 0, ())


def test_a_tail_that_agrees_is_not_copied_again() -> None:
    records: Source = [source(100), Dropped(101, 104), source(107), source(108)]
    tail: Tail = [copy(500, source(100)), Marker(501, OTHER, 9), copy(502, source(107)), fence(503)]
    resume = reconcile(STORED, tail, records, FENCES)
    assert resume == Resume(
        outcome=ResumeReason.AGREES,
        source_offset=108,
        target_offset=504,
        source=Accounts(records=2, dropped=4, holes=2),
        target=Accounts(records=2, dropped=2, holes=0),
        copied=2,
        runs=(ContiguousRange(100, 500, 1, 1), ContiguousRange(107, 502, 1, 2)),
    )
    assert resume.doubled_at_most == 0


def test_an_empty_tail_resumes_at_the_stored_position() -> None:
    resume = reconcile(STORED, [fence(500)], [], FENCES)
    assert (resume.outcome, resume.target_offset) == (ResumeReason.AGREES, 501)
    assert stored_position(resume)


def test_neither_side_is_read_further_than_needed() -> None:
    def endless(first: int) -> Iterator[Record]:
        yield source(first)
        raise AssertionError("read too far")

    def tail() -> Iterator[Record | Marker]:
        yield copy(500, source(100))
        yield fence(501)
        raise AssertionError("read behind the fence")

    assert reconcile(STORED, tail(), endless(100), FENCES).source_offset == 101


def test_a_record_that_differs() -> None:
    tail: Tail = [copy(500, source(100)), copy(501, source(101, b"other")), fence(502)]
    resume = reconcile(STORED, tail, [source(100), source(101)], FENCES)
    assert (resume.outcome, resume.at) == (ResumeReason.DISAGREES, 501)
    assert stored_position(resume)
    assert (resume.target_offset, resume.doubled_at_most) == (503, 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"key": None},
        {"value": None},
        {"headers": ()},
        {"headers": (("name", None),)},
        {"timestamp_ms": 1},
    ],
)
def test_all_of_a_record_is_compared(changed: dict[str, object]) -> None:
    tail: Tail = [copy(500, source(100)._replace(**changed)), fence(501)]  # type: ignore[arg-type]
    assert reconcile(STORED, tail, [source(100)], FENCES).outcome is ResumeReason.DISAGREES


def test_timestamps_of_appends_are_not_compared() -> None:
    tail: Tail = [copy(500, source(100, timestamp_ms=1_000)), fence(501)]
    resume = reconcile(STORED, tail, [source(100)], FENCES, compare_timestamps=False)
    assert (resume.outcome, resume.source_offset) == (ResumeReason.AGREES, 101)


def test_a_copied_record_that_compaction_removed_from_the_source() -> None:
    tail: Tail = [copy(500, source(100)), copy(501, source(101)), fence(502)]
    resume = reconcile(STORED, tail, [source(101)], FENCES)
    assert (resume.outcome, resume.at) == (ResumeReason.SOURCE_HOLES, 500)
    assert stored_position(resume)


def test_a_source_that_ends_before_the_tail() -> None:
    tail: Tail = [copy(500, source(100)), copy(501, source(101)), fence(502)]
    resume = reconcile(STORED, tail, [source(100)], FENCES)
    assert (resume.outcome, resume.at) == (ResumeReason.SOURCE_ENDS, 501)
    assert stored_position(resume)


@pytest.mark.parametrize("tail", [[copy(501, source(100)), fence(502)], [fence(501)]])
def test_a_target_without_its_whole_tail(tail: Tail) -> None:
    resume = reconcile(STORED, tail, [source(100)], FENCES)
    assert resume.outcome is ResumeReason.TARGET_HOLES
    assert stored_position(resume)


def test_a_foreign_record_though_its_content_agrees() -> None:
    tail: Tail = [copy(500, source(100), producer_id=FOREIGN), fence(501)]
    resume = reconcile(STORED, tail, [source(100)], FENCES)
    assert (resume.outcome, resume.at) == (ResumeReason.FOREIGN_RECORD, 500)


def test_another_filter() -> None:
    tail: Tail = [copy(500, source(100)), fence(501)]
    resume = reconcile(STORED, tail, [source(100)], FENCES, same_filter=False)
    assert (resume.outcome, resume.doubled_at_most) == (ResumeReason.FILTER_CHANGED, 1)
    assert stored_position(resume)


def test_a_fence_that_is_not_there() -> None:
    tail: Tail = [copy(500, source(100)), fence(501, epoch=2), Marker(502, OTHER, 3)]
    resume = reconcile(STORED, tail, [source(100)], FENCES)
    assert (resume.outcome, resume.unfenced) == (ResumeReason.UNFENCED, frozenset({OLD}))
    assert hash(resume) == hash(reconcile(STORED, tail, [source(100)], FENCES))
    assert resume.target_offset == 500, "more may be appended: the tail begins where it did"
    assert stored_position(resume)


def test_a_later_fence_of_the_same_id_is_as_good() -> None:
    assert reconcile(STORED, [fence(500, epoch=4)], [], FENCES).outcome is ResumeReason.AGREES


def test_without_any_fence_nothing_is_read() -> None:
    def unread() -> Iterator[Record]:
        raise AssertionError
        yield

    resume = reconcile(STORED, unread(), unread(), {})
    assert (resume.outcome, resume.unfenced) == (ResumeReason.UNFENCED, frozenset({OLD}))


def test_all_writers_need_a_fence() -> None:
    stored = STORED._replace(writers=frozenset({OLD, OTHER}))
    tail: Tail = [copy(500, source(100)), fence(501), copy(502, source(101), OTHER)]
    records: Source = [source(100), source(101)]
    resume = reconcile(stored, tail, records, FENCES)
    assert (resume.outcome, resume.unfenced) == (ResumeReason.UNFENCED, frozenset({OTHER}))
    closed = reconcile(stored, [*tail, Marker(503, OTHER, 1)], records, {OLD: 3, OTHER: 1})
    assert (closed.outcome, closed.source_offset) == (ResumeReason.AGREES, 102)


@pytest.mark.parametrize("offset", [499, 500])
def test_offsets_that_do_not_ascend_are_refused(offset: int) -> None:
    tail: Tail = [copy(500, source(100)), fence(offset)]
    with pytest.raises(ValueError, match="follows offset 500"):
        reconcile(STORED, tail, [source(100)], FENCES)
