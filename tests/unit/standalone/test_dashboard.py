"""Dashboard of a run: its queries, and the hour of data that it stores."""

import asyncio
import json
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.cli.main import main
from headrace.control import control
from headrace.errors import InvalidSpec
from headrace.standalone import StandaloneHerder
from headrace.standalone.control_handlers import answer
from headrace.standalone.dashboard import History, page, url
from headrace.standalone.dashboard.query import Scrape, compile_query

SCRAPES = [
    Scrape(
        100.0,
        {"copied_total": [({"flow": "f", "task": "0"}, 50), ({"flow": "f", "task": "1"}, 90)]},
    ),
    Scrape(
        110.0,
        {
            "copied_total": [
                ({"flow": "f", "task": "0"}, 80),
                ({"flow": "f", "task": "1"}, 20),  # restarted
                ({"flow": "g", "task": "2"}, 7),  # did not exist before
            ],
            "lag": [({"task": str(n), "flow": "f"}, n) for n in range(20)],
            "beat": [({"cluster": "east"}, 104)],
            "condition": [({"condition": "Ready"}, 1), ({"condition": "Stalled"}, 0)],
        },
    ),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('lag{task="7", flow=~"$flow"}', [({"task": "7", "flow": "f"}, 7)]),
        ('lag{task=~"7|8", flow!~"f"}', []),
        ("nothing", []),
        ("sum by (flow) (lag)", [({"flow": "f"}, 190)]),
        ("max by (flow, pod) (lag)", [({"flow": "f", "pod": ""}, 19)]),
        ("topk(2, max by (task) (lag))", [({"task": "19"}, 19), ({"task": "18"}, 18)]),
        ("max by (task) (lag) > 18", [({"task": "19"}, 19)]),
        ("time() - max by (cluster) (beat)", [({"cluster": "east"}, 6)]),
        ('condition{condition!~"Ready|Reconciling"}', [({"condition": "Stalled"}, 0)]),
        ("sum by (flow) (rate(copied_total[$__rate_interval]))", [({"flow": "f"}, 5)]),
        ("sum by (flow) (increase(copied_total[$__rate_interval]))", [({"flow": "f"}, 50)]),
    ],
)
def test_a_query_is_answered(query: str, expected: object) -> None:
    assert compile_query(query)(SCRAPES) == expected


def test_a_series_that_began_within_the_window_has_a_rate() -> None:
    """A task whose driver was killed has such a series."""
    later = Scrape(112.0, {"copied_total": [({"flow": "g", "task": "2"}, 27)]})
    query = compile_query("rate(copied_total[$__rate_interval])")
    assert query([*SCRAPES, later]) == [({"flow": "g", "task": "2"}, 10)]


def test_one_scrape_has_no_rate() -> None:
    assert compile_query("rate(copied_total[$__rate_interval])")(SCRAPES[:1]) == []


@pytest.mark.parametrize(
    "query", ["lag{", "sum (lag)", "lag lag", "avg by (a) (lag)", "lag + lag", ""]
)
def test_what_is_not_known_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|was expected|not expected|too soon"):
        compile_query(query)


class Run(Collector):
    """Only collector of a registry: a flow that copies."""

    copied = 0

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        self.copied += 1000
        records = CounterMetricFamily(
            "headrace_task_copied_records", "", labels=("namespace", "flow")
        )
        records.add_metric(["shop", "orders"], self.copied)
        lag = GaugeMetricFamily(
            "headrace_task_lag_seconds", "", labels=("namespace", "flow", "task")
        )
        if self.copied > 1000:
            lag.add_metric(["shop", "orders", "task-0"], 3)
        yield from (records, lag)


def test_the_history_has_a_value_for_each_time() -> None:
    registry = CollectorRegistry()
    registry.register(Run())
    history = History(registry)
    assert history.document()["times"] == []
    for _ in range(3):
        asyncio.run(history.add())
    document = json.loads(json.dumps(history.document()))
    assert len(document["times"]) == 3
    panels = {panel["title"]: panel for panel in document["panels"]}
    assert panels["Behind"]["series"] == {"shop/orders": [None, 3, 3]}
    first, *rates = panels["Records copied"]["series"]["shop/orders"]
    assert first is None
    assert min(rates) > 0
    assert panels["What is wrong"]["series"] == {}
    assert {"says", "unit"} <= panels["Records copied"].keys()
    assert "Requests of drivers to the API server" not in panels


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page()
    assert "dashboard.json" in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:9404/"),
        ("0.0.0.0", "http://127.0.0.1:9404/"),
        ("::", "http://[::1]:9404/"),
        ("fd00::1", "http://[fd00::1]:9404/"),
    ],
)
def test_where_a_browser_finds_it(address: str, expected: str) -> None:
    assert url(address, 9404) == expected


def test_the_command_prints_where_it_is_when_there_is_no_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(control, "running_flows", lambda: ["orders", "payments"])
    monkeypatch.setattr(control, "request", lambda *_: {"url": "http://127.0.0.1:9404/"})
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert main(["flow", "dashboard"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "http://127.0.0.1:9404/"
    assert "ssh -L 9404:127.0.0.1:9404 " in lines[1]
    assert len(lines) == 2


def test_a_run_without_it_says_how_to_have_it(tmp_path: Path) -> None:
    class Herder(StandaloneHerder):
        def __init__(self) -> None:
            self.dashboard = None

    with pytest.raises(InvalidSpec, match=r"serves no dashboard: .*--metrics-port 9404"):
        asyncio.run(answer(Herder(), "orders", "dashboard", {}))
