"""Groups of partitions whose fetches expire."""

from headrace.api import TopicPartition
from headrace.datapath.slow_partitions import MAX_TIMEOUT_S, TOGETHER, Apart


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in range(count)]


def test_one_slow_partition_of_a_thousand_is_alone_after_four_expiries() -> None:
    apart, slow = Apart(5.5), TopicPartition("orders", 617)
    waited_s, together = 0.0, partitions(1_000)
    for _ in range(4):
        group = apart.group(slow)
        waited_s += apart.timeout_s(group)
        apart.expired(group, together)
        for other in {apart.group(at) for at in together} - {apart.group(slow)}:
            apart.answered(other, 0.5)
        together = [at for at in together if apart.group(at) == apart.group(slow)]

    assert together == [slow]
    assert waited_s == 4 * 5.5
    assert [apart.group(at) for at in partitions(1_000)].count(TOGETHER) == 999


def test_a_partition_that_is_alone_gets_more_time_up_to_a_limit() -> None:
    apart, (slow,) = Apart(5.5), partitions(1)
    times = []
    for _ in range(6):
        apart.expired(apart.group(slow), [slow])
        times.append(apart.timeout_s(apart.group(slow)))

    assert times == [16.5, 49.5, 148.5, MAX_TIMEOUT_S, MAX_TIMEOUT_S, MAX_TIMEOUT_S]


def test_a_partition_with_late_answers_stays_apart_and_keeps_its_time() -> None:
    apart, (slow,) = Apart(5.5), partitions(1)
    apart.expired(TOGETHER, [slow])
    group = apart.group(slow)

    assert not apart.answered(group, 12.0)
    assert (apart.group(slow), apart.timeout_s(group)) == (group, 16.5)
    assert apart.answered(group, 0.5)
    assert apart.group(slow) == TOGETHER


def test_a_silent_broker_gets_few_connections() -> None:
    apart, all_of_them = Apart(5.5), partitions(1_000)
    for _ in range(10):
        by_group: dict[int, list[TopicPartition]] = {}
        for at in all_of_them:
            by_group.setdefault(apart.group(at), []).append(at)
        for group, members in by_group.items():
            apart.expired(group, members)

    assert len({apart.group(at) for at in all_of_them}) <= 16


def test_a_partition_that_is_closed_ends_its_group() -> None:
    apart, (slow,) = Apart(5.5), partitions(1)
    apart.expired(TOGETHER, [slow])
    group = apart.group(slow)
    apart.forget(slow)

    assert apart.group(slow) == TOGETHER
    assert apart.timeout_s(group) == 5.5
