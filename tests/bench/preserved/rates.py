"""The highest rate of source transactions that a flow copies with bounded lag."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import mean

from bench.preserved.copies import START_S, Ends, copying, reached
from bench.preserved.load import Load

from headrace.kafka import Admin

PARTITIONS = 8
_STEP_S = 10.0
_GROWTH = 0.1
"""Share of the records that the source wrote in a step: lag that grows by less is bounded."""
_MADE = 0.9
"""The source has to commit so much of a rate, or it is the limit itself."""
_OFFSETS = 2
"""Offsets of a transaction: its record, and its marker."""
_DRAIN_S = 60.0


@dataclass(frozen=True)
class Place:
    """Location of the driver."""

    name: str
    source: str
    target: str
    """Bootstrap servers."""
    near: str
    """The source's, for the load."""
    far: bool


@dataclass(frozen=True)
class Rate:
    """Figures of one place."""

    highest: float
    """Transactions a second that were committed on the source, copied with bounded lag."""
    lag_s: float
    """Lag at the end, as the time that the highest rate takes for the records not yet copied."""
    too_many: float
    """Rate at which lag grew; 0 if the source did not commit more."""
    copied_per_s: float
    """Transactions a second that were copied while lag grew."""


def highest_rate(folder: Path, place: Place, number: int, say: Callable[[str], None]) -> Rate:
    """Double the rate until lag grows, or halve it until it does not; then try once in between."""
    topic, alias = f"transactions-{number}", f"t{number}"
    near = reached(place.near, "east")
    Admin(near).create_topic(topic, PARTITIONS)
    source = Ends(near, topic, PARTITIONS)
    target = Ends(reached(place.target, "west"), f"{alias}.{topic}", PARTITIONS)
    best = Rate(0, 0, 0, 0)
    with (
        Load(near, topic, PARTITIONS).running() as load,
        copying(folder, alias, place.source, place.target, topic),
    ):
        load.at_rate(PARTITIONS)
        target.wait(1, START_S)
        load.at_rate(0)
        rate, low, high = 8.0 if place.far else 100.0, 0.0, inf
        while True:
            _drain(source, target)
            say(f"{place.name}: {rate:,.0f} transactions/s ...")
            made, copied, growth, lag = _step(load, source, target, rate)
            if growth > _GROWTH:
                high = rate
                best = Rate(best.highest, best.lag_s, made, copied)
            elif made < rate * _MADE:  # the source commits no more than that
                return Rate(made, lag / _OFFSETS / made, 0, copied)
            else:
                low = rate
                best = Rate(made, lag / _OFFSETS / made, best.too_many, copied)
            if high < low * 2 or high < 2:
                return best
            rate = low * 2 if high == inf else low * 2**0.5 if low else high / 2


def _step(load: Load, source: Ends, target: Ends, rate: float) -> tuple[float, float, float, float]:
    """Return rates of transactions made and copied, the growth of lag, the final lag in offsets."""
    load.at_rate(rate)
    began_s, sent, there = time.monotonic(), load.sent, target()
    lags = []
    while time.monotonic() < began_s + _STEP_S:
        copied = target()  # first: lag is no less than that
        lags.append(source() - copied)
        time.sleep(0.1)
    took_s = time.monotonic() - began_s
    made, copied = load.sent - sent, target() - there
    load.at_rate(0)
    third = len(lags) // 3
    before, after = mean(lags[third : 2 * third]), mean(lags[2 * third :])
    growth = (after - before) / max(1, made * _OFFSETS / 3)
    return made / took_s, copied / _OFFSETS / took_s, growth, after


def _drain(source: Ends, target: Ends) -> None:
    end = source()
    target.wait(end, _DRAIN_S)


def rows(found: dict[str, Rate]) -> str:
    """Return a Markdown table."""
    lines = ["| | transactions/s, lag bounded | lag, s | too many | copied/s then |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for name, one in found.items():
        more = f"{one.too_many:,.0f}" if one.too_many else "the source's limit"
        lines.append(
            f"| {name} | {one.highest:,.0f} | {one.lag_s:.2f} | {more} | {one.copied_per_s:,.0f} |"
        )
    return "\n".join(lines)
