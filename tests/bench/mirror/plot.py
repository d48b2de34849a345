"""Core-seconds per GB, as bars."""

from collections.abc import Mapping
from pathlib import Path

from bench.mirror.figures import CatchUp
from matplotlib.figure import Figure


def draw(results: Mapping[str, Mapping[str, CatchUp]], file: Path) -> None:
    """Draw a group of bars for each workload, on a logarithmic scale, as SVG."""
    figure = Figure(figsize=(9, 1 + 1.2 * len(results)), layout="constrained")
    axes = figure.add_subplot()
    names = list(next(iter(results.values())))
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [group + number * height for group in range(len(results))]
        values = [each[name].cpu_s_per_gb for each in results.values()]
        axes.barh(places, values, height, label=name)
    axes.set_yticks([group + 0.4 for group in range(len(results))], list(results))
    axes.set_xscale("log")
    axes.set_xlabel("core-seconds per GB of values, less is better")
    axes.invert_yaxis()
    axes.legend()
    figure.savefig(file, format="svg", metadata={"Date": None})
