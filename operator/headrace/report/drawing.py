"""Drawings as inline SVG in the page's own colours.

Matplotlib draws with stand-in colours; they become CSS variables, so that a plot follows the page
into dark mode and onto paper. Text stays text, in the page's font. Each is drawn twice: a wide one
would have unreadable labels when it is scaled to a phone.
"""

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    """For a width of the page; the same for all plots, so that their time axes lie in line."""

    name: str
    inches: tuple[float, float]
    axes: tuple[float, float, float, float]
    """Left, bottom, width, height."""
    legend_rows: int


_SHAPES = (
    _Shape("wide", (9.2, 2.5), (0.085, 0.19, 0.905, 0.69), 1),
    _Shape("narrow", (4.6, 3.1), (0.18, 0.155, 0.79, 0.625), 3),
)


@dataclass(frozen=True)
class Drawing:
    """One plot, as SVG."""

    wide: str
    narrow: str
    """For a phone."""


def drawn(title: str, draw: Callable[[Axes], None]) -> Drawing:
    """What ``draw`` puts into the axes that it is given."""
    wide, narrow = (_svg(title, draw, shape) for shape in _SHAPES)
    return Drawing(wide, narrow)


def _svg(title: str, draw: Callable[[Axes], None], shape: _Shape) -> str:
    # A constant salt: the same result gives the same page, byte for byte. Ids differ by shape: what
    # they name in a drawing that is not shown does not exist for another one.
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
