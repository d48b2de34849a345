"""Axis labels of a report's plots with few messages, and the positions of names."""

import re

from headrace.api import ChaosAction, ChaosStep
from headrace.mirror_test import Fault, Latency, Point
from headrace.report import plots
from headrace.report.plots import Drawing

FEW = [
    Point(
        at_seconds=at,
        acknowledged_per_second=1,
        visible_per_second=1,
        behind=at % 2,
        p50_ms=15,
        p99_ms=latency_ms,
        max_ms=latency_ms,
    )
    for at, latency_ms in enumerate((20, 646, 30, 200))
]


def words(drawing: Drawing) -> list[str]:
    """Return the texts of both widths of a plot, without its label."""
    texts = re.findall(r"<text[^>]*>(.*?)</text>", drawing.wide + drawing.narrow, flags=re.DOTALL)
    return [re.sub(r"<[^>]*>", "", text).strip() for text in texts]


def test_there_is_no_half_message() -> None:
    for drawn in (plots.throughput(FEW, (), 0), plots.backlog(FEW, (), 0)):
        labels = words(drawn)
        assert {"0", "1"} <= set(labels)
        assert [label for label in labels if re.fullmatch(r"[\d.]+m", label)] == []


def test_less_than_one_message_a_ms_is_a_fraction() -> None:
    latency = Latency(
        p50=15, p99=500, p999=600, max=640, measured=12, histogram=((15, 10), (500, 1), (640, 1))
    )
    labels = words(plots.histogram(latency))
    assert "0.1" in labels
    assert [label for label in labels if re.fullmatch(r"[\d.]+m", label)] == []


def test_a_short_axis_of_times_is_in_milliseconds_too() -> None:
    labels = words(plots.latency_over_time(FEW, (), 0))
    assert {"20 ms", "100 ms", "600 ms"} <= set(labels)
    assert [label for label in labels if not label.isascii()] == []


def test_the_name_of_a_fault_is_where_there_is_room() -> None:
    """At its end, the name of a late fault would be outside the plot."""
    step = ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50)
    anchors = []
    for at_ms in (100, 2_900):
        drawing = plots.backlog(FEW, (Fault(step=step, at_ms=at_ms),), 0)
        named = re.findall(r'<text style="([^"]*)"[^>]*>KillDriver', drawing.narrow)
        anchors += re.findall(r"text-anchor: (\w+)", named[0]) or ["start"]
    assert anchors == ["start", "end"]
