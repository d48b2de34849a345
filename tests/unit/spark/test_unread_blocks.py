"""Blocks of an audit beyond the limit of records, of which only the numbers are compared."""

from collections.abc import Sequence

import pytest
from support.audit_logs import record, summarised

from headrace.mirror_test import FindingType
from headrace_spark.audit.differences import Edges, HashedRecord, compare_counts

LANE = ("orders", 0)
KNOWN = Edges(frontier={0: 4})
LOG = [record("orders", 0, number, 1_000)._replace(offset=number) for number in range(4)]


def counted(
    source: Sequence[HashedRecord],
    target: Sequence[HashedRecord],
    edges: Edges = KNOWN,
    *,
    may_be_refused: bool = False,
) -> tuple[list[tuple[FindingType, int]], int]:
    """Return the differences with their numbers of records, and the number of other records."""
    here, there = ({block.key: block for block in summarised(log)} for log in (source, target))
    found, unsure = compare_counts(
        here.keys() | there.keys(), here, there, {LANE: edges}, may_be_refused=may_be_refused
    )
    return [(one.kind, one.records) for one in found], unsure[LANE]


def test_fewer_records_on_the_target_are_missing() -> None:
    assert counted(LOG, LOG[:1]) == ([(FindingType.MISSING, 3)], 1)


def test_fewer_records_prove_nothing_if_the_target_may_have_refused_them() -> None:
    assert counted(LOG, LOG[:1], may_be_refused=True) == ([], 4)


def test_more_records_on_the_target_are_further_copies() -> None:
    copies = [one._replace(offset=4 + one.offset) for one in LOG[:2]]
    assert counted(LOG, [*LOG, *copies]) == ([(FindingType.DUPLICATED, 2)], 4)


def test_records_of_an_interval_that_the_source_lacks_are_alien() -> None:
    assert counted([], LOG) == ([(FindingType.ALIEN, 4)], 0)


@pytest.mark.parametrize(
    ("source", "target", "edges"),
    [
        (LOG, LOG[:1], Edges(frontier={0: 3})),
        (LOG, LOG[:1], Edges(frontier={0: 4}, target_is_cut=True)),
        (LOG[:1], LOG, Edges(frontier={0: 4}, source_is_cut=True)),
    ],
)
def test_records_beyond_the_edges_prove_nothing(
    source: Sequence[HashedRecord], target: Sequence[HashedRecord], edges: Edges
) -> None:
    assert counted(source, target, edges) == ([], 4)
