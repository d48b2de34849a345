"""Plots of a report as SVG."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogFormatter, MaxNLocator

from headrace.mirror_test import Fault, Latency, Point

# Plots as inline SVG in the page's colours.
#
# Matplotlib draws with placeholder colours. They are replaced by CSS variables, so that a plot
# follows the page into dark mode and onto paper. Text remains text in the page's font. Each plot is
# drawn twice, because the labels of a wide plot are unreadable on a phone.

_STAND_INS = {
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--sent)",
    "#040404": "var(--seen)",
    "#050505": "var(--warm)",
    "#060606": "var(--fault)",
    "#070707": "var(--soft)",
}
INK, FAINT, SENT, SEEN, WARM, FAULT, SOFT = _STAND_INS
"""Colours of the page."""

_STYLE: dict[Any, object] = {  # keys are a Literal of hundreds of names
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.01,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "grid.alpha": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.solid_joinstyle": "round",
}


@dataclass(frozen=True)
class _Shape:
    """Size of the plots for one page width. All plots share it, so their time axes are aligned."""

    name: str
    inches: tuple[float, float]
    axes: tuple[float, float, float, float]
    """Left, bottom, width and height."""
    legend_rows: int


_SHAPES = (
    _Shape("wide", (9.2, 2.5), (0.085, 0.19, 0.905, 0.69), 1),
    _Shape("narrow", (4.6, 3.1), (0.18, 0.155, 0.79, 0.625), 3),
)


@dataclass(frozen=True)
class Drawing:
    """Plot as SVG, for two page widths."""

    wide: str
    narrow: str
    """SVG for narrow screens."""


def drawn(title: str, draw: Callable[[Axes], None]) -> Drawing:
    """Return a drawing with the content that ``draw`` adds to the axes."""
    wide, narrow = (_svg(title, draw, shape) for shape in _SHAPES)
    return Drawing(wide, narrow)


def _svg(title: str, draw: Callable[[Axes], None], shape: _Shape) -> str:
    # The constant salt makes the page reproducible byte for byte. It differs by shape, because
    # references to ids in a hidden drawing do not work from another drawing.
    with rc_context({**_STYLE, "svg.hashsalt": f"{title} {shape.name}"}):
        figure = Figure(figsize=shape.inches)
        axes = figure.add_axes(shape.axes)
        draw(axes)
        if labels := axes.get_legend_handles_labels()[1]:
            columns = math.ceil(len(labels) / shape.legend_rows)
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', svg)
    opening = f'<svg {box[0] if box else ""} class="{shape.name}" role="img" aria-label="{title}">'
    svg = re.sub(r"<svg [^>]*>", opening, svg, count=1)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    return re.sub("|".join(_STAND_INS), lambda found: _STAND_INS[found[0]], svg)


_MIDDLE = 0.5


def throughput(points: Sequence[Point], faults: Sequence[Fault], started_ms: int) -> Drawing:
    """Draw the messages per second on the source and on the target.

    A message counts when the source acknowledges it, and when it is visible on the target.
    """

    def draw(axes: Axes) -> None:
        at = [p.at_seconds for p in points]
        sent = [p.acknowledged_per_second for p in points]
        axes.fill_between(at, sent, color=SENT, alpha=0.15, linewidth=0)
        axes.plot(at, sent, color=SENT, label="acknowledged on the source")
        axes.plot(
            at, [p.visible_per_second for p in points], color=SEEN, label="visible on the target"
        )
        _whole_from_zero(axes)
        _over_time(axes, points, faults, started_ms)
        axes.set_ylabel("messages/s")

    return drawn("Throughput over time", draw)


def backlog(points: Sequence[Point], faults: Sequence[Fault], started_ms: int) -> Drawing:
    """Draw the backlog: messages acknowledged on the source and not yet visible on the target."""

    def draw(axes: Axes) -> None:
        at, behind = [p.at_seconds for p in points], [p.behind for p in points]
        axes.fill_between(at, behind, color=WARM, alpha=0.2, linewidth=0)
        axes.plot(at, behind, color=WARM)
        _whole_from_zero(axes)
        _over_time(axes, points, faults, started_ms)
        axes.set_ylabel("messages")

    return drawn("Messages in flight over time", draw)


def latency_over_time(points: Sequence[Point], faults: Sequence[Fault], started_ms: int) -> Drawing:
    """Draw the latency of the messages that became visible in each second."""

    def draw(axes: Axes) -> None:
        seen = [p for p in points if p.p50_ms is not None]
        at = [p.at_seconds for p in seen]
        # A logarithmic axis cannot show 0 ms. The clock's resolution is 1 ms.
        for label, color, values in (
            ("max", SOFT, [max(p.max_ms or 0, 1) for p in seen]),
            ("p99", WARM, [max(p.p99_ms or 0, 1) for p in seen]),
            ("p50", SEEN, [max(p.p50_ms or 0, 1) for p in seen]),
        ):
            axes.plot(at, values, color=color, label=label, marker=".", markersize=3)
        own = [p for p in points if p.own_p99_ms is not None]
        for label, color, values in (
            ("own share, p99", WARM, [max(p.own_p99_ms or 0, 1) for p in own]),
            ("own share, p50", SEEN, [max(p.own_p50_ms or 0, 1) for p in own]),
        ):
            if own:
                axes.plot(
                    [p.at_seconds for p in own], values, color=color, label=label, linestyle=":"
                )
        axes.set_yscale("log")
        _durations(axes.yaxis)
        _over_time(axes, points, faults, started_ms)
        axes.set_ylabel("latency")

    return drawn("Latency over time", draw)


def histogram(latency: Latency) -> Drawing:
    """Draw the latency distribution, in messages per millisecond of latency."""

    def draw(axes: Axes) -> None:
        # A bin extends to the next one. 0 ms is drawn from 0.5 ms.
        lows = [max(low, 0.5) for low, _ in latency.histogram]
        widths = [_bin_end(low) - max(low, 0.5) for low, _ in latency.histogram]
        # Divided by the bin width in ms, because bins of higher latencies are wider.
        counts = [count / w for (_, count), w in zip(latency.histogram, widths, strict=True)]
        axes.bar(lows, counts, widths, align="edge", color=SEEN, alpha=0.75, linewidth=0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for label, value in (("p50", latency.p50), ("p99", latency.p99)):
            axes.axvline(max(value, 0.5), color=INK, linewidth=0.9, linestyle=(0, (2, 3)))
            _mark(axes, max(value, 0.5), label, INK)
        _durations(axes.xaxis)
        axes.yaxis.set_major_formatter(FuncFormatter(_rate))
        axes.set_xlabel("latency")
        axes.set_ylabel("messages a ms")

    return drawn("Latency of all messages", draw)


class _Durations(LogFormatter):
    """Formatter of durations for minor ticks.

    Matplotlib labels minor ticks of a short axis, by default as powers of ten.
    """

    def __call__(self, x: float, pos: int | None = None) -> str:
        return _duration(x) if super().__call__(x, pos) else ""


def _whole_from_zero(axes: Axes) -> None:
    """Format an axis that shows a number of messages, without fractions."""
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _durations(axis: Axis) -> None:
    """Format a logarithmic axis of durations."""
    axis.set_major_formatter(FuncFormatter(_duration))
    axis.set_minor_formatter(_Durations())


def _rate(messages: float, _: int | None = None) -> str:
    """Format a rate. Rates below 1 are not abbreviated, because EngFormatter would print 100m."""
    return f"{messages:g}" if messages < 1 else EngFormatter(sep="")(messages)


def _over_time(
    axes: Axes, points: Sequence[Point], faults: Sequence[Fault], started_ms: int
) -> None:
    """Format the time axis and draw the faults on it."""
    axes.set_xlim(0, max(points[-1].at_seconds, 1))
    axes.set_xlabel("seconds since the first message")
    for fault in faults:
        if fault.at_ms is None:
            continue
        at = (fault.at_ms - started_ms) / 1000
        axes.axvline(at, color=FAULT, linewidth=1.2)
        if fault.recovery_seconds is not None:
            since = at + (fault.step.seconds or 0)
            axes.axvspan(
                since, since + fault.recovery_seconds, color=FAULT, alpha=0.12, linewidth=0
            )
        _mark(axes, at, fault.step.action, FAULT)


def _mark(axes: Axes, at: float, text: str, color: str) -> None:
    """Write a label at the upper end of a vertical line, on the side with more room."""
    across, _ = (axes.transData - axes.transAxes).transform((at, 1))
    axes.annotate(
        text,
        (at, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4 if across < _MIDDLE else -4, -2),
        textcoords="offset points",
        ha="left" if across < _MIDDLE else "right",
        va="top",
        color=color,
    )


def _bin_end(low: int) -> int:
    """Return the end of a bin with two significant digits: 1300 for 1200."""
    step: int = 10 ** max(0, len(str(low)) - 2)
    return low + step


def _duration(milliseconds: float, _: int | None = None) -> str:
    if milliseconds < 1_000:
        return f"{milliseconds:g} ms"
    return f"{milliseconds / 1_000:g} s"
