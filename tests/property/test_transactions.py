"""What of a log is committed, by its markers: compared with how it was written."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication.transactions import Ended, Written, decided

STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["write", "commit", "abort"]), st.integers(1, 3)),
    max_size=40,
)


@given(STEPS)
def test_each_batch_ends_with_the_first_marker_of_its_producer(
    steps: list[tuple[int, str, int]],
) -> None:
    log: list[Written | Ended] = []
    open_: dict[int, list[range]] = {}
    outcome: dict[range, bool] = {}
    end = 0
    for producer, step, records in steps:
        if step == "write":
            offsets = range(end, end + records)
            log.append(Written(offsets, producer))
            open_.setdefault(producer, []).append(offsets)
            end += records
        else:
            log.append(Ended(end, producer, step == "commit"))
            outcome |= dict.fromkeys(open_.pop(producer, []), step == "commit")
            end += 1
    assert dict(decided(log)) == outcome
    # Read from any batch on, the outcome of what is read is the same.
    for index, entry in enumerate(log):
        if isinstance(entry, Written):
            later = {one: ended for one, ended in outcome.items() if one.start >= entry.offsets[0]}
            assert dict(decided(log[index:])) == later
