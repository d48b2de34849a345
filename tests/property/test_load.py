"""Arithmetic of a load: sent records add up, and failures are reported exactly."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.mirror_test.load import Stream
from headrace.mirror_test.result import quantile, two_digits
from headrace_spark import messages
from headrace_spark.comparison import acknowledged_ranges


@given(st.integers(0, 10**9), st.integers(1, 200))
def test_shares_add_up_and_differ_by_one_at_most(total: int, parts: int) -> None:
    shares = [messages.share(total, parts, index) for index in range(parts)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


@given(st.sets(st.integers(0, 500)))
def test_ranges_hold_the_numbers_and_no_others(numbers: set[int]) -> None:
    found = messages.ranges(numbers)
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(b[0] > a[1] + 1 for a, b in pairwise(found))


@given(st.integers(0, 300), st.sets(st.integers(0, 299)))
def test_acknowledged_and_refused_are_all_that_was_sent(sent: int, failed: set[int]) -> None:
    failed = {n for n in failed if n < sent}
    stream = Stream(producer="p", topic="t", sent=sent, failed=tuple(messages.ranges(failed)))
    acknowledged = [
        n for first, last in acknowledged_ranges(stream) for n in range(first, last + 1)
    ]
    assert acknowledged == [n for n in range(sent) if n not in failed]


@given(st.integers(0, 10**7))
def test_two_digits_are_at_most_a_tenth_below(number: int) -> None:
    rounded = two_digits(number)
    assert number * 10 // 11 <= rounded <= number
    assert int(str(rounded)[2:] or 0) == 0


@given(st.lists(st.integers(0, 1_000), min_size=1), st.sampled_from([0.5, 0.99, 0.999, 1.0]))
def test_a_quantile_is_the_least_value_that_reaches_its_share(
    values: list[int], share: float
) -> None:
    histogram = tuple((v, values.count(v)) for v in sorted(set(values)))
    found = quantile(histogram, share)
    assert sum(v <= found for v in values) >= share * len(values)
    assert sum(v < found for v in values) < share * len(values)
