"""The window of what is sent and not acknowledged."""

from headrace.api.partitions import TopicPartition
from headrace.kafka import KafkaError, Message
from headrace.movers import Copied, InFlightWindow

PURGED = KafkaError(KafkaError._PURGE_QUEUE)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


def window_at(position: int = 10, copied: Copied | None = None) -> InFlightWindow:
    return InFlightWindow(TopicPartition("orders", 0), position, "east.orders", copied=copied)


def send(window: InFlightWindow, *offsets: int) -> None:
    for offset in offsets:
        window.sent(offset, timestamp_ms=1_000 + offset, size=100)


def acknowledge(window: InFlightWindow, offset: int, target_offset: int = 0) -> None:
    window.delivered(offset, None, Message(offset=target_offset))


def refuse(window: InFlightWindow, offset: int, error: KafkaError) -> None:
    window.delivered(offset, error, Message(offset=-1001))


def test_the_acknowledged_position_is_the_end_of_what_has_no_gap() -> None:
    window = window_at(10)
    send(window, 10, 11, 15)
    assert (window.acknowledged, window.position, window.in_flight) == (10, 16, 3)
    acknowledge(window, 10, 0)
    assert window.acknowledged == 11
    acknowledge(window, 11, 1)
    assert window.acknowledged == 15  # 12 to 14 hold nothing to copy
    acknowledge(window, 15, 2)
    assert (window.acknowledged, window.bytes_in_flight, window.copied.records) == (16, 0, 3)


def test_a_report_that_is_early_waits_for_the_older_ones() -> None:
    window = window_at(10)
    send(window, 10, 11, 12)
    acknowledge(window, 11, 1)
    assert (window.acknowledged, window.copied.records) == (10, 0)
    acknowledge(window, 10, 0)
    assert (window.acknowledged, window.copied.records) == (12, 2)
    assert (window.target_offset, window.unexpected_offsets) == (2, 0)


def test_markers_count_when_nothing_is_in_flight() -> None:
    window = window_at(10)
    send(window, 10)
    window.passed(14)
    assert window.acknowledged == 10
    acknowledge(window, 10)
    assert window.acknowledged == 14


def test_an_unexpected_target_offset_is_counted() -> None:
    window = window_at(10)
    send(window, 10, 11, 12)
    for offset, target_offset in ((10, 100), (11, 101), (12, 103)):
        acknowledge(window, offset, target_offset)
    assert (window.unexpected_offsets, window.target_offset) == (1, 104)


def test_nothing_is_acknowledged_after_a_refused_record() -> None:
    window = window_at(10)
    send(window, 10, 11)
    refuse(window, 10, TOO_LARGE)
    acknowledge(window, 11, 0)
    assert window.acknowledged == 10
    assert window.error is TOO_LARGE
    window.rewind()
    assert (window.position, window.in_flight) == (10, 0)
    assert (window.error, window.refused) == (TOO_LARGE, range(10, 11))


def test_dropped_records_are_read_again_and_acknowledged_ones_are_not() -> None:
    window = window_at(10)
    send(window, 10, 11, 12, 13)
    refuse(window, 13, PURGED)
    refuse(window, 12, PURGED)
    acknowledge(window, 10, 0)
    acknowledge(window, 11, 1)
    window.rewind()
    assert (window.position, window.acknowledged, window.error) == (12, 12, None)


def test_a_dropped_record_is_read_again_when_a_younger_one_was_appended() -> None:
    window = window_at(10)
    send(window, 10, 11)
    refuse(window, 10, PURGED)  # it was refused, requeued, and dropped from the queue
    acknowledge(window, 11, 0)
    window.rewind()
    assert (window.position, window.acknowledged) == (10, 10)


def test_what_is_copied_is_counted_for_all_partitions_of_a_task_and_never_twice() -> None:
    copied = Copied()
    windows = [window_at(10, copied) for _ in range(2)]
    for window in windows:
        send(window, 10, 11)
        acknowledge(window, 10)
    assert (copied.records, copied.bytes) == (2, 200)
    windows[0].rewind()
    acknowledge(windows[0], 11)  # of what was in flight before
    assert (copied.records, copied.bytes) == (2, 200)
