"""Prometheus and promtool, built once: they evaluate the chart's alerts and dashboards."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import urllib3
import yaml
from cluster.build import FLAGS, PROXIES
from cluster.program import Module, Program

from headrace.sandbox.processes import held_ports

_MODULE = "github.com/prometheus/prometheus/cmd"
_MODULES = Module(
    Path(__file__).parents[1] / "cluster" / "prometheus",
    # No service discovery: it would bring the libraries of all clouds.
    ("-tags=remove_all_sd", *FLAGS, "-ldflags=-s -w"),
    "200 MB of downloads and 2 GB of Go's own caches",
)
PROMTOOL = Program("promtool", "promtool", _MODULES, f"{_MODULE}/promtool", 2, PROXIES)
"""Program for the tests of the chart's alerts."""
PROMETHEUS = Program("prometheus", "Prometheus", _MODULES, f"{_MODULE}/prometheus", 1, PROXIES)
"""Program for the tests of the chart's dashboards."""
SCRAPE_S = 1
END_WITHIN_S = 120


@cache
def promtool_binary() -> Path:
    """Return ``promtool`` as ``Program.get`` finds it. Raises Fatal if it is not available."""
    return PROMTOOL.get()


@cache
def prometheus_binary() -> Path:
    """Return ``prometheus`` as ``Program.get`` finds it. Raises Fatal if it is not available."""
    return PROMETHEUS.get()


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool, and return its output and its exit code."""
    return subprocess.run(
        [promtool_binary(), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def scraped(port: int) -> dict[str, float]:
    """Return all series at a port of this machine, by the beginning of their lines."""
    url = f"http://127.0.0.1:{port}/metrics"
    answer = urllib3.request("GET", url, timeout=60, retries=False)
    lines = answer.data.decode().splitlines()
    series = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in series}


def filled(expression: str, picked: Mapping[str, str]) -> str:
    """Return the expression with the picked values of the dashboard's variables."""
    return re.sub(r"\$(\w+)", lambda name: picked[name[1]], expression)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ready(self) -> bool:
        """Return whether it answers yet."""
        try:
            ready = urllib3.request("GET", f"{self._url}/-/ready", timeout=60, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return ready.status == 200

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the present series of an expression. An error of the expression fails the test."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def unanswered(self, page: Mapping[str, Any], picked: Mapping[str, str]) -> set[str]:
        """Return the panels of a dashboard that have a query without data.

        Variables that do not find the picked value are also returned.
        """
        empty = {
            panel["title"]
            for panel in page["panels"]
            for target in panel["targets"]
            if not self.query(filled(target["expr"], picked))
        }
        for variable in page["templating"]["list"][1:]:
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert asked, variable
            found = self.query(f"group by ({asked[2]}) ({filled(asked[1], picked)})")
            if picked[variable["name"]] not in {one["metric"].get(asked[2]) for one in found}:
                empty.add(f"{page['title']}: ${variable['name']}")
        return empty

    def query_range(self, expression: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Return the series of an expression between two Unix times, second by second."""
        window = {"start": str(start_s), "end": str(end_s), "step": str(SCRAPE_S)}
        found: list[dict[str, Any]] = self._get("query_range", query=expression, **window)["result"]
        return found

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of all firing alerts."""
        alerts = self._get("alerts")["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def targets(self) -> dict[str, str]:
        """Return the health of each target, by its address."""
        active = self._get("targets")["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in active}

    def _get(self, path: str, **fields: str) -> Any:
        url = f"{self._url}/api/v1/{path}"
        answer = urllib3.request("GET", url, fields=fields, timeout=60, retries=False)
        body = json.loads(answer.data)
        assert body["status"] == "success", f"{fields}: {body.get('error')}"
        return body["data"]


@contextmanager
def running_prometheus(
    folder: Path,
    jobs: Mapping[str, Sequence[Mapping[str, Any]]],
    rules: Sequence[Mapping[str, Any]],
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes ``jobs`` and evaluates ``rules`` each second.

    ``jobs`` are static_configs by the job's name, scraped as by the chart's PodMonitors. ``rules``
    are groups of rules.
    """
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(rules)}))
    config = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": name, "honor_labels": True, "static_configs": list(targets)}
            for name, targets in jobs.items()
        ],
    }
    file, log = folder / "prometheus.yaml", folder / "prometheus.log"
    file.write_text(yaml.safe_dump(config))
    with held_ports([None]) as (port,), log.open("wb") as out:
        address = f"127.0.0.1:{port}"
        process = subprocess.Popen(
            [
                prometheus_binary(),
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()
            process.wait(END_WITHIN_S)
