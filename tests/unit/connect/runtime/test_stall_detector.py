"""Conditions that count as a stall."""

from types import SimpleNamespace

from headrace.connect.runtime.context import StallDetector


def test_only_a_gap_of_more_than_a_second_counts() -> None:
    now = [100.0]
    detector = StallDetector(SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0]))
    for step in (0.5, 1.0, 0.2):
        now[0] += step
        detector.beat()
    assert detector.stalls == 0
    now[0] += 1.1
    detector.beat()
    detector.beat()
    assert detector.stalls == 1
