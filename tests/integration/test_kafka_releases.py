"""Flows between brokers of different releases of Kafka."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from support.flows import FlowRun, manifest, spec
from support.other_kafka import StartKafka, other_kafkas
from support.patience import WITHIN_S
from support.records import (
    Comparison,
    Load,
    arrived,
    compare,
    count,
    make_topic,
    numbered,
    produce_with,
    read,
    unique,
)

from headrace.api import ClusterAccess
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]
long = pytest.mark.long


@pytest.fixture
def start_kafka(tmp_path: Path, wait_until: WaitUntil) -> Iterator[StartKafka]:
    """Yield ``start_kafka("east", "2.8.2")``, which starts a broker of that release."""
    with other_kafkas(tmp_path, wait_until) as start:
        yield start


def fill_mixed(cluster: ClusterAccess, topic: str) -> None:
    """Write batches of all codecs, and transactions that commit and abort between them."""
    for first, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        made = [numbered(100, 2, 1_000 * first + 100 * n) for n in range(3)]
        produce_with(cluster, topic, made[0], **{"compression.codec": codec})
        kept = produce_with(cluster, topic, made[1], **{"transactional.id": unique("tx")})
        dropped = produce_with(cluster, topic, made[2], **{"transactional.id": unique("tx")})
        dropped.abort_transaction(WITHIN_S)
        kept.commit_transaction(WITHIN_S)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("2.8.2", "4.4.0"),
        pytest.param("3.3.2", "2.8.2", marks=long),
        pytest.param("3.3.2", "4.4.0", marks=long),
        pytest.param("3.9.1", "4.4.0", marks=long),
        pytest.param("4.4.0", "3.9.1", marks=long),
        pytest.param("3.9.1", "2.8.2", marks=long),
        pytest.param("4.3.1", "4.4.0", marks=long),
        pytest.param("2.4.1", "4.4.0", marks=long),
        pytest.param("4.4.0", "2.4.1", marks=long),
    ],
)
def test_a_flow_copies_each_record_once_and_a_killed_driver_loses_nothing(  # noqa: PLR0917
    source: str,
    target: str,
    start_kafka: StartKafka,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    def cluster(name: str, version: str) -> SandboxCluster:
        """Start a cluster; the sandbox's release needs no jars of its own."""
        other = version != "4.4.0"
        return cast(SandboxCluster, start_kafka(name, version)) if other else start_cluster(name)

    east, west = cluster("east", source), cluster("west", target)
    mixed = make_topic(spec(east), unique("mixed"), 2)
    loaded = make_topic(spec(east), unique("loaded"), 4)
    fill_mixed(spec(east), mixed)
    flow = manifest("releases", east, west, mixed, loaded)

    with FlowRun(tmp_path, [flow]) as run:
        with Load(spec(east), loaded, 4, per_second=1_000) as load:
            wait_until(lambda: count(spec(west), f"east.{loaded}") > 1_000)
            wait_until(run.ready)
            (driver,) = run.drivers()
            os.kill(driver.pid, signal.SIGKILL)
            copied = count(spec(west), f"east.{loaded}")
            wait_until(lambda: count(spec(west), f"east.{loaded}") > copied + 2_000)
        # Without markers of fences, which are offsets as well.
        wait_until(
            lambda: arrived(spec(west), f"east.{loaded}"), until=lambda copied: copied >= load.sent
        )
        written = arrived(spec(east), mixed)
        wait_until(
            lambda: arrived(spec(west), f"east.{mixed}"), until=lambda copied: copied >= written
        )
        assert run.stop() == 0, run.output

    assert "event=copying" in run.output
    assert "an answer was damaged" not in run.output
    found = compare(read(spec(east), loaded), read(spec(west), f"east.{loaded}"))
    assert found == Comparison(missing=0, repeated=0, in_order=True)
    assert read(spec(west), f"east.{mixed}") == read(spec(east), mixed)
