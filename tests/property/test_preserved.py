"""Writes and comparisons of ``offsets.mode: Preserved``, against an oracle for each offset."""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from support.join_helper import compiled
from support.stored import CODECS, batches_of, content, log_batch, marker

from headrace.datapath.chunk import Joiner, Judged, Memory, Run, each_found_in
from headrace.datapath.preserved.plan import Append, Hole, Operation, planned
from headrace.datapath.preserved.takeover import Entry, first_difference
from headrace.kafka.wire import (
    Batch,
    Buffers,
    Decoded,
    Scanner,
    StoredRecord,
    decoded,
    stored_records,
)
from headrace.replication.reconcile import Dropped, Record

STAMPED = 0x08
TRANSACTIONAL = 0x10


class Log(NamedTuple):
    """Partition of a source, and the records that a consumer of committed records receives."""

    batches: list[Batch]
    committed: dict[int, Decoded]
    aborted: list[tuple[int, int, int]]
    """Producer, first offset, offset of the marker."""
    start: int
    end: int


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Draw batches of several producers: transactions, compaction, all codecs, brokers' times."""
    start = offset = draw(st.sampled_from([0, 1, 7, 1_000]))
    parts: list[bytearray] = []
    committed: dict[int, Decoded] = {}
    open_: dict[int, dict[int, Decoded]] = {}
    first: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []

    def end(producer: int, *, commit: bool) -> None:
        nonlocal offset
        parts.append(marker(offset, producer, commit=commit))
        records = open_.pop(producer)
        if commit:
            committed.update(records)
        else:
            aborted.append((producer, first[producer], offset))
        del first[producer]
        offset += 1

    for _ in range(draw(st.integers(0, 12))):
        step = draw(st.sampled_from(["plain", "inside", "inside", "end", "gap"]))
        if step == "gap":  # whole batches that compaction removed
            offset += draw(st.integers(1, 4))
        elif step == "end":
            if open_:
                producer = draw(st.sampled_from(sorted(open_)))
                end(producer, commit=draw(st.booleans()))
        else:
            producer = draw(st.integers(1, 3)) if step == "inside" else -1
            size = draw(st.integers(1, 6))
            kept = [one for one in range(size) if draw(st.integers(0, 3))]
            stamped = draw(st.integers(0, 3)) == 0
            records = [
                StoredRecord(
                    offset + one, draw(st.integers(0, 99)), content(b"%d" % one, b"v" * one)
                )
                for one in kept
            ]
            data = log_batch(
                records,
                codec=draw(st.sampled_from(CODECS)),
                base_offset=offset,
                last_offset=offset + size - 1,
                producer_id=producer,
                attributes=TRANSACTIONAL * (producer > 0) | STAMPED * stamped,
                max_timestamp=50 if stamped else None,
            )
            parts.append(data)
            held = {one.offset: one for one in decodeds(batches_of(data)[0])}
            if producer > 0:
                open_.setdefault(producer, {}).update(held)
                first.setdefault(producer, offset)
            else:
                committed |= held
            offset += size
    for producer in sorted(open_):
        end(producer, commit=draw(st.booleans()))
    return Log(batches_of(*parts), committed, aborted, start, offset)


def decodeds(batch: Batch) -> Iterator[Decoded]:
    return map(decoded, stored_records(batch))


def found(
    batches: Sequence[Batch], start: int, aborted: Sequence[tuple[int, int]], most_bytes: int
) -> Iterator[Judged | Run]:
    """Yield the batches found in a response, with small ones joined up to ``most_bytes``.

    Small batches are not joined if ``most_bytes`` is 0.
    """
    joiner = Joiner(Buffers(1 << 20), Memory(), time.monotonic, find_helper=compiled)

    def join(records: memoryview, start: int) -> Run | None:
        return joiner.join(records, start, most_bytes, check=True)

    log = memoryview(bytearray().join(batch.data for batch in batches))
    scanned = Scanner().scan(log, start, aborted)
    return each_found_in(log, scanned, join=join if most_bytes else None)


def responses(
    log: Log, start: int, size: int, most_bytes: int, *, copies: bool = False
) -> Iterator[list[Operation]]:
    """Yield the planned operations for each response, from ``start`` to the log's end.

    A response has ``size`` batches. Small ones are joined up to ``most_bytes``, or not joined if it
    is 0.
    """
    position = start
    while some := [one for one in log.batches if one.last_offset >= position][:size]:
        last = some[-1].last_offset
        listed = [
            (who, first) for who, first, end in log.aborted if first <= last and end >= position
        ]
        passed = found(some, position, listed, most_bytes)
        plan = planned(passed, start=position, release=lambda: None, copies=copies)
        operations = list(plan)
        yield operations
        position = operations[-1].next


@given(logs(), st.data())
def test_what_is_planned_puts_each_committed_record_at_its_offset(
    log: Log, data: st.DataObject
) -> None:
    start = data.draw(st.integers(log.start, log.end))
    position, target = start, dict[int, Decoded]()
    most_bytes = data.draw(st.sampled_from([0, 10, 60, 1_000]))
    for operations in responses(log, start, data.draw(st.integers(1, 5)), most_bytes):
        holes = [isinstance(one, Hole) for one in operations]
        assert (True, True) not in pairwise(holes)  # as long as possible
        for one in operations:
            first = one.first
            assert first == position  # no gap, no overlap
            assert one.next > first
            if isinstance(one, Append):
                batch = one.outgoing.batch
                # Brokers accept only such batches from a producer.
                assert batch.record_count == batch.last_offset_delta + 1 == one.next - first
                assert not batch.log_append_time
                for offset, record in enumerate(decodeds(batch), first):
                    target[offset] = record._replace(offset=offset)
            position = one.next
    assert target == {at: one for at, one in log.committed.items() if at >= start}
    assert position == max([start, *(one.last_offset + 1 for one in log.batches)])


@given(logs(), st.data())
def test_copies_of_the_next_record_fill_what_compaction_removed(
    log: Log, data: st.DataObject
) -> None:
    """All other offsets stay holes: markers, aborted records and the offsets before a marker."""
    start = data.draw(st.integers(log.start, log.end))
    position, target = start, dict[int, Decoded]()
    ends = set[int]()
    most_bytes, size = data.draw(st.sampled_from([0, 1_000])), data.draw(st.integers(1, 5))
    for operations in responses(log, start, size, most_bytes, copies=True):
        for one in operations:
            assert one.first == position
            if isinstance(one, Append):
                batch = one.outgoing.batch
                assert batch.record_count == batch.last_offset_delta + 1 == one.next - one.first
                assert one.outgoing.first_offset == one.first
                for offset, record in enumerate(decodeds(batch), one.first):
                    target[offset] = record._replace(offset=offset)
            position = one.next
        ends.add(position)
    unseen = {
        offset
        for one in log.batches
        if one.control or any(who == one.producer_id and first <= one.base_offset < end
                              for who, first, end in log.aborted)
        for offset in range(one.base_offset, one.last_offset + 1)
    }  # fmt: skip
    for offset in range(start, position):
        after = [at for at in range(offset, log.end) if at in log.committed or at in unseen]
        follows = after and after[0] in log.committed
        if follows and not any(offset < end <= after[0] for end in ends):
            assert target[offset] == log.committed[after[0]]._replace(offset=offset)
        else:
            assert offset not in target


@given(st.integers(1, 30_000), st.booleans(), st.sampled_from([0, 300]))
def test_of_a_long_gap_each_offset_has_the_next_record(
    gap: int, whole: bool, value_bytes: int
) -> None:
    value = b"v" * value_bytes
    kept = [StoredRecord(gap + one, 5, content(b"key", value)) for one in (0, 1 + (not whole))]
    log = batches_of(log_batch(kept, base_offset=kept[0].offset if whole else 0))
    plan = planned(found(log, 0, [], 0), start=0, release=lambda: None, copies=True)
    position = 0
    for one in plan:
        assert isinstance(one, Append)
        assert one.first == position
        for offset, record in enumerate(decodeds(one.outgoing.batch), position):
            assert record._replace(offset=offset) == Decoded(offset, 5, b"key", value, ())
        position = one.next
    assert position == kept[-1].offset + 1


@given(st.lists(st.sampled_from(["small", "small", "small", "large", "gap"]), max_size=12))
def test_small_batches_that_follow_each_other_become_one(steps: list[str]) -> None:
    """Other batches are not joined."""
    offset, parts, expected = 0, [], list[int]()
    before = ""
    for step in steps:
        if step == "gap":
            offset += 1
            parts.append(marker(offset - 1, 1, commit=True))
        else:
            size = 70_000 if step == "large" else 10
            record = StoredRecord(offset, 1, content(None, b"v" * size))
            parts.append(log_batch([record], base_offset=offset))
            if step == before == "small":
                expected[-1] += 1
            else:
                expected.append(1)
            offset += 1
        before = step
    plan = planned(found(batches_of(*parts), 0, [], 1 << 20), start=0, release=lambda: None)
    made = [one.outgoing.records for one in plan if isinstance(one, Append)]
    assert made == expected


Cells = list[str | None]
"""Value of the record at each offset, ``"-"`` for a marker or aborted record, None if removed."""
CELLS: st.SearchStrategy[Cells] = st.lists(st.sampled_from(["a", "b", "-", None]), max_size=12)


def entries(cells: Sequence[str | None], *, together: bool) -> Iterator[Entry]:
    """Yield the entries that ``Tail`` reads, with dropped ones as one entry if ``together``."""
    offset = 0
    while offset < len(cells):
        cell, last = cells[offset], offset
        if cell == "-":
            while together and last + 1 < len(cells) and cells[last + 1] == "-":
                last += 1
            yield Dropped(offset, last)
        elif cell is not None:
            yield Record(offset, b"key", cell.encode())
        offset = last + 1


def agrees(
    original: str | None, copy: str | None, follows: str | None, *, source: bool, target: bool
) -> bool:
    """Return True if one offset of the copy agrees with the original.

    ``follows`` is the source's next record. ``source`` and ``target`` say whether that side
    compacts.
    """
    if copy is None:
        return target
    if original is None and copy == follows != "-":
        return True
    if copy == "-":
        return original in {"-", None}
    return original == copy or (original is None and source)


@given(st.tuples(CELLS, CELLS), st.booleans(), st.booleans(), st.booleans())
def test_the_first_offset_that_differs_is_found(
    logs: tuple[Cells, Cells], source: bool, target: bool, together: bool
) -> None:
    original, copy = logs
    size = min(len(original), len(copy))
    expected = next(
        (
            at
            for at in range(size)
            if not agrees(
                original[at],
                copy[at],
                next((one for one in original[at:] if one is not None), None),
                source=source,
                target=target,
            )
        ),
        None,
    )
    found = first_difference(
        entries(original, together=together),
        entries(copy, together=not together),
        range(size),
        source_compacts=source,
        target_compacts=target,
    )
    assert (None if found is None else found.offset) == expected


@given(st.lists(st.sampled_from("ab-"), min_size=1, max_size=12), st.data())
def test_a_marker_too_many_is_found_where_it_is(cells: list[str], data: st.DataObject) -> None:
    """All following records are one offset late, which the logs' ends alone do not show."""
    records = [at for at, cell in enumerate(cells) if cell != "-"]
    at = data.draw(st.sampled_from([*records, len(cells)]))
    late, original = [*cells[:at], "-", *cells[at:]], [*cells, "a"]
    found = first_difference(
        entries(original, together=False), entries(late, together=False), range(len(late))
    )
    assert found is not None
    assert found.offset == at
