"""Data of the dashboard's panels for the last hour."""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from prometheus_client import CollectorRegistry

from headrace.logs import get_logger
from headrace.standalone.dashboard.query import Labels, Query, Scrape, compile_query

log = get_logger(__name__)

_INTERVAL_S = 5.0
_MAX_TIME_SHARE = 0.05
"""Maximum share of time spent on scrapes. If a scrape is slow, the interval grows."""
_POINTS = 720
"""Number of points in an hour."""
_WINDOW = 4
"""Number of scrapes from which a rate is computed. They cover 15 s."""


@dataclass(frozen=True)
class _Panel:
    shown: Mapping[str, Any]
    """Data that the page needs to draw the panel."""
    queries: Sequence[tuple[str, Query]]
    """Queries with the templates of their series' names, as in Grafana: ``{{task}}``."""

    def values(self, scrapes: Sequence[Scrape]) -> dict[str, float]:
        return {
            _legend(name, labels): value
            for name, query in self.queries
            for labels, value in query(scrapes)
        }


_Point = tuple[float, list[dict[str, float]]]
"""Unix time, and the values by series for each panel."""


class History:
    """Points of the dashboard, kept in memory."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._panels = _panels()
        self._scrapes: deque[Scrape] = deque(maxlen=_WINDOW)
        self._points: deque[_Point] = deque(maxlen=_POINTS)

    async def run(self) -> None:
        """Add a point every few seconds, until cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self.add()
            except TimeoutError:
                log.warning("the dashboard lacks a point: drivers did not answer a scrape")
            took = time.monotonic() - began
            await asyncio.sleep(max(_INTERVAL_S, took / _MAX_TIME_SHARE))

    async def add(self) -> None:
        """Scrape the metrics and add a point."""
        scrape = await asyncio.to_thread(_scrape, self._registry)
        self._scrapes.append(scrape)
        scrapes = list(self._scrapes)
        values = await asyncio.to_thread(lambda: [panel.values(scrapes) for panel in self._panels])
        self._points.append((scrape.at_s, values))

    def document(self) -> dict[str, Any]:
        """Return the data of the page: the times and the series of each panel.

        A series has one value, or None, for each time.
        """
        return {
            "times": [at_s for at_s, _ in self._points],
            "panels": [
                {**panel.shown, "series": self._series(index)}
                for index, panel in enumerate(self._panels)
            ],
        }

    def _series(self, panel: int) -> dict[str, list[float | None]]:
        points = [values[panel] for _, values in self._points]
        names = sorted({name for point in points for name in point})
        return {name: [point.get(name) for point in points] for name in names}


def url(address: str, port: int) -> str:
    """Return the URL of the dashboard for a browser on this machine.

    ``address`` is the address on which it is served. 0.0.0.0 and :: stand for all addresses.
    """
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}.get(address)
    return f"http://{host or (f'[{address}]' if ':' in address else address)}:{port}/"


def page() -> str:
    """Return the HTML page that draws the content of ``History.document``."""
    return (files(__package__) / "page.html").read_text()


def _panels() -> list[_Panel]:
    text = (files(__package__) / "panels.json").read_text()
    return [
        _Panel(
            {key: value for key, value in panel.items() if key != "queries"},
            [(name, compile_query(query)) for name, query in panel["queries"].items()],
        )
        for panel in json.loads(text)
    ]


def _scrape(registry: CollectorRegistry) -> Scrape:
    series: dict[str, list[tuple[Labels, float]]] = {}
    for family in registry.collect():
        for sample in family.samples:
            series.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
    return Scrape(time.time(), series)


def _legend(template: str, labels: Labels) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), template)
