"""Records at both ends of an audited range, where a missing record proves nothing."""

from headrace.mirror_test import FindingType
from headrace_spark.audit.differences import Edges, HashedRecord, classify

LANE = ("orders", 0)


def heartbeat(offset: int) -> HashedRecord:
    """Return a record that differs from others only in its timestamp."""
    return HashedRecord(*LANE, offset, 1_000 + offset, key=1, value=2, headers=3, content=4)


def test_new_record_is_no_original_of_a_copy_that_the_source_deleted() -> None:
    edges = {LANE: Edges(frontier={0: 10}, source_is_cut=True)}
    source, target = map(heartbeat, range(2, 12)), map(heartbeat, range(10))
    found = classify([*source], [*target], {}, edges, ordered=True)
    assert found.differences == ()
    assert found.after_frontier == 2
    assert [record.offset for record in found.deleted_on_source] == [0, 1]


def test_changed_copy_of_a_new_record_is_corrupted() -> None:
    edges = {LANE: Edges(frontier={0: 10}, source_is_cut=True)}
    source = [*map(heartbeat, range(2, 11))]
    target = [*map(heartbeat, range(2, 10)), heartbeat(10)._replace(value=5, content=6)]
    found = classify(source, target, {}, edges, ordered=True)
    assert [(one.kind, one.differs) for one in found.differences] == [
        (FindingType.CORRUPTED, "value")
    ]
    assert found.after_frontier == 0
