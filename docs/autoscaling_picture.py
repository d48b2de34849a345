"""Draws ``docs/pictures/autoscaling.svg`` of a run: ``python docs/autoscaling_picture.py``.

``HEADRACE_SAMPLES=$PWD/docs/pictures/autoscaling.csv pytest tests/integration/test_autoscaling.py``
writes the data.
"""

import csv
import io
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

FOLDER = Path(__file__).parent / "pictures"
DATA, PICTURE = FOLDER / "autoscaling.csv", FOLDER / "autoscaling.svg"
_COLUMNS = ("at_s", "lag", "desired", "ready", "claims")


def samples() -> dict[str, list[float]]:
    """Return the columns of the data; each row is valid until the next."""
    with DATA.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    rows.append(rows[-1] | {"at_s": float(rows[-1]["at_s"]) + 3})  # so that the last is seen
    return {name: [float(row[name]) for row in rows] for name in _COLUMNS}


def svg() -> str:
    """Lag, drivers and claims over the same seconds."""
    seen = samples()
    figure = Figure(figsize=(8.4, 4.8), facecolor="white", layout="constrained")
    lag, drivers, claims = figure.subplots(3, 1, sharex=True)
    at_s = seen["at_s"]
    lag.step(at_s, [one / 1000 for one in seen["lag"]], where="post", color="#b3261e")
    lag.set_ylabel("lag by the metric,\nthousand records")
    drivers.step(at_s, seen["desired"], where="post", color="#9a9a9a", label="desired")
    drivers.step(at_s, seen["ready"], where="post", color="#1f5fa8", label="ready")
    drivers.set_ylabel("drivers")
    drivers.legend(frameon=False, loc=(0.2, 0.36))
    claims.step(at_s, seen["claims"], where="post", color="#2e7d32")
    claims.set_ylabel("claims of units,\nin total")
    claims.set_xlabel("seconds")
    claims.set_xlim(-1, seen["at_s"][-1])
    for axes in (lag, drivers, claims):
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels()
    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "autoscaling", "font.size": 9}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


if __name__ == "__main__":
    PICTURE.write_text(svg())
