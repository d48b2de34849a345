from headrace.mirror_test import Second
from headrace_spark.probe_consumer import MAX_LATENCY_MS, LatencyHistogram, merged, second


def test_arrivals_are_counted_by_latency_and_by_the_second_they_were_seen_in() -> None:
    arrivals = LatencyHistogram()
    arrivals.add({1_000: 1}, 1_500)
    arrivals.add({1_400: 1}, 1_900)
    arrivals.add({1_900: 2}, 3_134)
    assert arrivals.histogram == {500: 2, 1_234: 2}
    assert arrivals.seconds == {1: {500: 2}, 3: {1_200: 2}}


def test_a_message_seen_before_it_was_sent_is_counted_apart() -> None:
    arrivals = LatencyHistogram()
    arrivals.add({1_010: 1}, 1_000)
    assert arrivals.before_sent == 1
    assert arrivals.histogram == {0: 1}


def test_the_number_of_buckets_is_bounded() -> None:
    arrivals = LatencyHistogram()
    arrivals.add({0: 1}, 10 * MAX_LATENCY_MS)
    assert arrivals.histogram == {MAX_LATENCY_MS: 1}


def test_consumers_add_up() -> None:
    assert merged([{1: 2, 5: 1}, {5: 3}, {}]) == ((1, 2), (5, 4))
    assert second(9, [{10: 98, 700: 1}, {20: 1}]) == Second(
        second=9, visible=100, p50_ms=10, p99_ms=20, max_ms=700
    )
