"""The comparison of an audit against a brute-force oracle, on random logs."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit_logs import (
    WIDTH_MS,
    Log,
    audited,
    audited_with,
    copied,
    laid_out,
    record,
    stable,
    summarised,
)

from headrace.mirror_test import FindingType
from headrace_spark.audit.differences import (
    HashedRecord,
    compare_blocks,
)


def in_order(source: Log, target: Log) -> int:
    """Brute force: the records of both sides that a longest common order has, by quadratic time."""
    total = 0
    for at in {one[:2] for one in source}:
        here = [one.identity for one in sorted(source) if one[:2] == at]
        there = [one.identity for one in sorted(target) if one[:2] == at]
        before = [0] * (len(there) + 1)
        for mine in here:
            now = [0]
            for index, theirs in enumerate(there):
                longer = before[index] + 1 if mine == theirs else 0
                now.append(max(longer, before[index + 1], now[-1]))
            before = now
        total += before[-1]
    return total


def common(source: Log, target: Log) -> int:
    """Count the records that both sides have in the same partition."""
    here = Counter((one[:2], one.identity) for one in source)
    there = Counter((one[:2], one.identity) for one in target)
    return (here & there).total()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_sums_of_classes_account_for_every_record(seed: int) -> None:
    dice, logs = copied(seed)
    source = laid_out(logs, dice)
    for _ in range(dice.randrange(6)):
        log = logs[dice.choice(sorted(logs))]
        at = dice.randrange(len(log) + 1)
        match dice.choice(["drop", "double", "swap", "change", "alien", "move"]):
            case "drop" if log:
                log.pop(at - 1)
            case "double" if log:
                log.insert(at, dice.choice(log))
            case "swap" if log:
                log.insert(at, log.pop(dice.randrange(len(log))))
            case "change" if log:
                log[at - 1] = log[at - 1]._replace(value=-1 - at, content=stable("changed", at))
            case "alien":
                log.insert(at, record("", 0, 100_000 + at, 1_010))
            case "move" if log:
                logs[dice.choice(sorted(logs))].append(log.pop(at - 1))
    target = laid_out(logs, dice)
    found = audited(source, target, {})
    counts = Counter[FindingType]()
    for one in found:
        counts[one.kind] += one.records
    same = common(source, target)
    assert len(source) - same == counts[FindingType.MISSING] + counts[FindingType.CORRUPTED]
    surplus = (
        counts[FindingType.DUPLICATED] + counts[FindingType.ALIEN] + counts[FindingType.CORRUPTED]
    )
    assert len(target) - same == surplus
    ordered = in_order(source, target)
    distinct = len({one.identity for one in source}) == len(source)
    if distinct and not counts[FindingType.DUPLICATED]:
        assert counts[FindingType.REORDERED] == same - ordered
    assert (counts[FindingType.REORDERED] == 0) >= (found == [])
    assert counts[FindingType.REORDERED] >= same - ordered
    if source and sorted(r[:2] + r[3:] for r in source) == sorted(r[:2] + r[3:] for r in target):
        assert set(counts) <= {FindingType.REORDERED}


def test_a_record_moved_across_a_block_whose_rows_another_record_restores() -> None:
    early, late, moved = (record("orders", 0, n, at) for n, at in enumerate((1_000, 1_001, 1_008)))
    copy = moved._replace(value=99, content=stable("alien"))

    def log(*records: HashedRecord) -> Log:
        return [one._replace(offset=offset) for offset, one in enumerate(records)]

    source, target = log(early, moved, late), log(early, copy, late, moved)
    agrees = compare_blocks(summarised([source[0], source[2]]), summarised(target[:3:2]), 100)
    assert not agrees.differing
    found = audited(source, target, {})
    assert sorted(one.kind for one in found) == [FindingType.ALIEN, FindingType.REORDERED]


def test_agreed_blocks_beside_a_difference_beyond_the_limit_are_not_called_equal() -> None:
    log = [record("orders", 0, n, 1_000 + n % 3 * WIDTH_MS) for n in range(30)]
    source = [one._replace(offset=offset) for offset, one in enumerate(log)]
    target = [*source[:-1], source[-1]._replace(value=-1, content=-1)]
    found = compare_blocks(summarised(source), summarised(target), 20)
    assert (len(found.differing), len(found.unread), found.agreed) == (1, 2, {})


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_refused_records_may_be_missing_and_nothing_else_changes(seed: int) -> None:
    """Brute force: a missing record is excused if a dead letter names its offset."""
    dice, logs = copied(seed)
    source = laid_out(logs, dice)
    refused = {one.origin for one in source if dice.random() < 0.2}
    lost = {one.origin for one in source if dice.random() < 0.1}
    # The mirror copies some of the refused records after all, and appends an alien record.
    lost |= {origin for origin in refused if dice.random() < 0.7}
    kept: dict[tuple[str, int], Log] = {at: [] for at in logs}
    for one in source:
        if one.origin not in lost:
            kept[one[:2]].append(one)
    alien = dice.random() < 0.3
    if alien:
        kept["orders", 0].append(record("", 0, 100_000, 1_010))
    found, excused = audited_with(source, laid_out(kept, dice), refused)

    missing = excusable = 0
    for name in {(one[:2], one.identity) for one in source}:
        of_name = [one for one in source if (one[:2], one.identity) == name]
        absent = sum(one.origin in lost for one in of_name)
        letters = sum(one.origin in refused for one in of_name)
        excusable += min(absent, letters)
        missing += absent - min(absent, letters)
    counts = Counter(one.kind for one in found)
    changed = counts[FindingType.CORRUPTED]
    assert counts[FindingType.MISSING] + changed == missing
    assert counts[FindingType.ALIEN] + changed == alien
    assert len(excused) == excusable
    assert {one.origin for one in excused} <= refused
    assert counts[FindingType.DUPLICATED] == 0
