"""The window of what is sent and not acknowledged."""

from confluent_kafka import KafkaError

from headrace.api.partitions import TopicPartition
from headrace.movers import Copied, InFlightWindow


class Report:
    """A delivery report, as far as a flight looks at it."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


def flight(position: int = 10) -> InFlightWindow:
    return InFlightWindow(TopicPartition("orders", 0), position, "east.orders")


def send(window: InFlightWindow, *offsets: int) -> None:
    for offset in offsets:
        window.sent(offset, timestamp_ms=1_000 + offset, size=100)


def test_the_acknowledged_position_is_the_end_of_what_has_no_gap() -> None:
    window = flight()
    send(window, 10, 11, 15)
    assert (window.acknowledged, window.position, window.in_flight) == (10, 16, 3)
    window.delivered(None, Report(0))
    assert window.acknowledged == 11
    window.delivered(None, Report(1))
    assert window.acknowledged == 15  # 12 to 14 hold nothing to copy
    window.delivered(None, Report(2))
    assert (window.acknowledged, window.bytes_in_flight, window.copied.records) == (16, 0, 3)


def test_markers_count_when_nothing_is_in_flight() -> None:
    window = flight()
    send(window, 10)
    window.passed(14)
    assert window.acknowledged == 10
    window.delivered(None, Report(0))
    assert window.acknowledged == 14


def test_an_unexpected_target_offset_is_counted() -> None:
    window = flight()
    send(window, 10, 11, 12)
    for offset in (100, 101, 103):
        window.delivered(None, Report(offset))
    assert (window.unexpected_offsets, window.target_offset) == (1, 104)


def test_nothing_is_acknowledged_after_a_refused_record() -> None:
    window = flight()
    send(window, 10, 11)
    window.delivered(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Report(-1))
    window.delivered(None, Report(0))
    assert window.acknowledged == 10
    assert window.error is not None
    window.rewind()
    assert (window.position, window.in_flight, window.error) == (10, 0, None)


def test_dropped_records_are_read_again_and_acknowledged_ones_are_not() -> None:
    window = flight()
    send(window, 10, 11, 12, 13)
    purged = KafkaError(KafkaError._PURGE_QUEUE)
    window.delivered(purged, Report(-1))
    window.delivered(purged, Report(-1))
    window.delivered(None, Report(0))
    window.delivered(None, Report(1))
    window.rewind()
    assert (window.position, window.acknowledged) == (12, 12)


def test_what_is_copied_is_counted_for_all_partitions_of_a_task_and_never_twice() -> None:
    copied = Copied()
    windows = [
        InFlightWindow(TopicPartition("orders", number), 10, "east.orders", copied=copied)
        for number in range(2)
    ]
    for window in windows:
        send(window, 10, 11)
        window.delivered(None, Report(0))
    assert (copied.records, copied.bytes) == (2, 200)
    windows[0].rewind()
    windows[0].delivered(None, Report(1))  # of what was in flight before
    assert (copied.records, copied.bytes) == (2, 200)
