"""Committed part of a log by its markers, compared with how the log was written."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from support.stored import content, log_batch, marker

from headrace.datapath.chunk import HeldBatches
from headrace.kafka.wire import Batch, StoredRecord, split_batches
from headrace.replication.reconcile import Ended, TransactionalBatch, decided

STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["write", "commit", "abort"]), st.integers(1, 3)),
    max_size=40,
)


@given(STEPS)
def test_each_batch_ends_with_the_first_marker_of_its_producer(
    steps: list[tuple[int, str, int]],
) -> None:
    log: list[TransactionalBatch | Ended] = []
    open_: dict[int, list[range]] = {}
    outcome: dict[range, bool] = {}
    end = 0
    for producer, step, records in steps:
        if step == "write":
            offsets = range(end, end + records)
            log.append(TransactionalBatch(offsets, producer))
            open_.setdefault(producer, []).append(offsets)
            end += records
        else:
            log.append(Ended(end, producer, step == "commit"))
            outcome |= dict.fromkeys(open_.pop(producer, []), step == "commit")
            end += 1
    assert dict(decided(log)) == outcome
    # The outcome does not depend on the batch at which reading starts.
    for index, entry in enumerate(log):
        if isinstance(entry, TransactionalBatch):
            later = {one: ended for one, ended in outcome.items() if one.start >= entry.offsets[0]}
            assert dict(decided(log[index:])) == later


WRITERS, ANOTHER = frozenset({1, 2}), 3


def in_log(steps: list[tuple[int, str, int]]) -> Iterator[Batch]:
    """Yield a batch or marker for each step, one offset each; ``plain`` is in no transaction."""
    for offset, (producer, step, _) in enumerate(steps):
        if step in {"commit", "abort"}:
            data = marker(offset, producer, commit=step == "commit")
        else:
            record = StoredRecord(offset, 0, content(None, b"x"))
            attributes = 0 if step == "plain" else 0x10
            data = log_batch([record], attributes=attributes, producer_id=producer)
        yield split_batches(memoryview(data)).batches[0]


@given(
    st.lists(
        st.tuples(
            st.integers(1, ANOTHER),
            st.sampled_from(["write", "plain", "commit", "abort"]),
            st.just(1),
        ),
        max_size=30,
    )
)
def test_batches_pass_in_order_once_their_writers_transactions_have_ended(
    steps: list[tuple[int, str, int]],
) -> None:
    held = HeldBatches(WRITERS)
    passed: list[tuple[int, bool]] = []
    for read, batch in enumerate(in_log(steps), 1):
        passed += [(one.base_offset, aborted) for one, aborted in held.take(batch)]
        ends = [ended(steps[:read], offset) for offset in range(read)]
        open_ = ends.index("open") if "open" in ends else read
        assert passed == [(offset, ends[offset] == "abort") for offset in range(open_)]


def ended(steps: list[tuple[int, str, int]], offset: int) -> str:
    producer, step, _ = steps[offset]
    if step != "write" or producer not in WRITERS:
        return "passes"
    behind = (
        end for one, end, _ in steps[offset:] if one == producer and end in {"commit", "abort"}
    )
    return next(behind, "open")
