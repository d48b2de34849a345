"""Offset syncs of random copies: no translation skips a record that was removed or compacted.

A translation that is called exact is the offset of the very next record.
"""

from hypothesis import given
from hypothesis import strategies as st

from headrace.api import TopicPartition
from headrace.replication import CopiedTo, OffsetSync, Precision, SyncedOffsets
from headrace.replication.progress import CopiedRuns

AT = TopicPartition("orders", 0)

STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),  # holes of the source before the record
        st.sampled_from([0, 0, 0, 0, 1, 3]),  # a marker, or another client's records, on the target
        st.sampled_from([False] * 7 + [True]),  # another lane begins before it
        st.booleans(),  # the syncs so far are taken now
    ),
    min_size=1,
    max_size=60,
)


@given(STEPS, st.data())
def test_no_record_is_skipped_and_exact_is_exact(
    steps: list[tuple[int, int, bool, bool]], data: st.DataObject
) -> None:
    pairs: list[tuple[int, int]] = []
    written: list[tuple[OffsetSync, bytes]] = []
    lane, runs, source, target = 0, CopiedRuns(), 0, 0

    def take() -> None:
        for run in runs.take():
            for pair in ((run.source, run.target), run.last):
                contiguity_id = b"%d/%d" % (lane, run.contiguity_id)
                written.append((OffsetSync(*AT, *pair), contiguity_id))

    for holes, gap, another, taken in steps:
        if another:
            take()
            lane, runs = lane + 1, CopiedRuns()
        source, target = source + holes, target + gap
        pairs.append((source, target))
        runs.add(source, target)
        source, target = source + 1, target + 1
        if taken:
            take()
    take()
    kept = [one for one in written if data.draw(st.integers(0, 5))] or written
    compacted = kept[data.draw(st.integers(0, len(kept) - 1)) :]
    known = SyncedOffsets()
    for sync, contiguity_id in compacted:
        known.take(sync, contiguity_id)
    complete = SyncedOffsets()
    for sync, contiguity_id in written:
        complete.take(sync, contiguity_id)

    copied_to = CopiedTo(source, target)
    for offset in range(source + 3):
        very_next = next((copy for at, copy in pairs if at >= offset), target)
        found = known.translate(AT, offset, copied_to)
        if found is not None:
            assert found.offset <= very_next
            between = [copy for _, copy in pairs if found.offset <= copy < very_next]
            assert found.precision is not Precision.EXACT or not between
            assert (found.precision is Precision.AHEAD) <= (offset > source)
        everything = complete.translate(AT, offset, copied_to)
        if offset >= pairs[0][0] and len(pairs) <= 16:  # no lane left out a record
            assert everything is not None
            assert not [copy for _, copy in pairs if everything.offset <= copy < very_next]
