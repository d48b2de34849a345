"""``headrace run`` as a service: its metrics, and edits of its manifests under load."""

import json
import re
import signal
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.flows import FlowRun, manifest, spec
from support.groups import commit
from support.helm import CHART
from support.records import Comparison, Load, compare, make_topic, numbered, produce, read, unique

from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
NOT_HERE = {"headrace_api_requests_total"}
"""Metrics that a run lacks, because there is no API server."""


@pytest.fixture(autouse=True)
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the records of runs in a folder of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def get(run: FlowRun, path: str) -> str:
    (port,) = re.findall(r'"port": (\d+)', run.output)
    answer = urllib3.request("GET", f"http://127.0.0.1:{port}{path}", timeout=60, retries=False)
    return f"{answer.status} {answer.data.decode()}"


def metrics(run: FlowRun) -> dict[str, list[dict[str, str]]]:
    """Return the labels of all series, by metric."""
    text = get(run, "/metrics").removeprefix("200 ")
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def asked_by_the_dashboard() -> set[str]:
    page = json.loads((CHART / "files" / "dashboards" / "flow.json").read_text())
    queries = [target["expr"] for panel in page["panels"] for target in panel["targets"]]
    return set(re.findall(r"\b((?:headrace|process)_\w+)\{", " ".join(queries)))


def shown_by_the_dashboard(run: FlowRun, title: str) -> list[str]:
    """Return the series of a panel of the run's own page."""
    document = json.loads(get(run, "/dashboard.json").removeprefix("200 "))
    return [
        name for panel in document["panels"] if panel["title"] == title for name in panel["series"]
    ]


def test_metrics_and_three_edits_under_load(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    orders, late = (make_topic(spec(east), unique(word), 4) for word in ("orders", "late"))
    produce(spec(east), late, numbered(100, 4))
    name = unique("service")
    commit(east, f"{name}-readers", orders, {0: 0})
    fields: dict[str, Any] = {
        "tasks": {"max": 2},
        "discovery": {"topicsSeconds": 1},
        "drivers": {"leaseSeconds": 20},
    }
    flow = manifest(name, east, west, orders, **fields)
    options = ("--drivers=2", "--metrics-port=0", "--log-format=json")
    with FlowRun(tmp_path, [flow], *options) as run:

        def edit(**changed: Any) -> None:
            flow["spec"].update(changed)
            run.file.write_text(yaml.safe_dump(flow))
            run.process.send_signal(signal.SIGHUP)

        def generation() -> Any:
            return run.status().get("observedGeneration")

        def owned() -> dict[str, tuple[Any, ...]]:
            return {
                unit["name"]: (unit["driverName"], unit["epoch"])
                for unit in run.status().get("units", [])
            }

        with Load(spec(east), orders, 4, per_second=200):
            wait_until(run.settled)
            wait_until(partial(get, run, "/readyz"), until=partial(eq, "200 ok\n"))
            wait_until(
                partial(metrics, run),
                until=lambda found: (
                    asked_by_the_dashboard() - found.keys() <= NOT_HERE
                    and {one["pod"] for one in found["headrace_task_partitions"]}
                    == {"driver-1", "driver-2"}
                ),
            )
            assert get(run, "/").startswith("200 <!doctype html>")
            wait_until(partial(shown_by_the_dashboard, run, "Records copied"))
            before = owned()

            edit(topics={"include": [orders, late]})
            wait_until(lambda: run.status().get("partitions"), until=partial(eq, 8))
            assert owned() == before, "tasks take more partitions where they are"

            edit(tasks={"max": 3})
            wait_until(lambda: len(run.settled()), until=partial(eq, 3))
            assert before.items() <= owned().items(), (
                "the new task takes partitions, no other moves"
            )
            applied = generation()

            edit(tasks={"max": 0})
            notices = wait_until(lambda: run.status().get("notices"))
            assert "spec.tasks.max: got 0, must be at least 1" in notices[0]
            assert generation() == applied
            assert len(run.units()) == 3
        for topic in (orders, late):
            wait_until(
                lambda topic=topic: compare(
                    read(spec(east), topic), read(spec(west), f"east.{topic}")
                ),
                until=partial(eq, Comparison(missing=0, repeated=0, in_order=True)),
            )
        assert run.stop() == 0
