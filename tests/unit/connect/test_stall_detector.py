"""What counts as a standstill."""

import pytest

from headrace.connect import stall_detector


def test_only_a_gap_of_more_than_a_second_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(stall_detector.time, "monotonic", lambda: now[0])
    loop = stall_detector.StallDetector()
    for step in (0.5, 1.0, 0.2):
        now[0] += step
        loop.beat()
    assert loop.standstills == 0
    now[0] += 1.1
    loop.beat()
    loop.beat()
    assert loop.standstills == 1
