"""Checks of real clusters for the batch mover, and copies to a target without transactions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.records import arrived, make_topic, numbered, produce, read, unique

from headrace.api import ClusterAccess, ClusterSpec
from headrace.datapath.fence import NoTransactions, check_clusters
from headrace.errors import Unreachable
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


def test_clusters_that_have_what_batch_needs(east: SandboxCluster, west: SandboxCluster) -> None:
    check_clusters(spec(east), spec(west))


def test_source_that_is_away_keeps_no_fail_over_from_fencing(west: SandboxCluster) -> None:
    away = ClusterAccess(ClusterSpec(alias="away", bootstrap_servers="127.0.0.1:1"), "spec.source")
    check_clusters(away, spec(west))
    with pytest.raises(Unreachable, match="no broker of away"):
        check_clusters(spec(west), away)


def test_target_without_transactions_is_copied_to_unfenced(
    east: SandboxCluster,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    alone = start_cluster("alone", properties={"transaction.state.log.replication.factor": "3"})
    check_clusters(spec(alone), spec(east))
    with pytest.raises(NoTransactions, match=r"alone \(.*\) has no transaction coordinator"):
        check_clusters(spec(east), spec(alone), coordinator_s=2)

    topic = make_topic(spec(east), unique("unfenced"), 2)
    produce(spec(east), topic, numbered(500, 2))
    with FlowRun(tmp_path, [manifest("unfenced", east, alone, topic)]) as run:
        message = wait_until(
            lambda: run.condition("RecordsMayRepeat").get("message", ""),
            until=lambda found: "no transaction coordinator" in found,
            within_s=WITHIN_S,
        )
        assert "earlier owners cannot be fenced: alone" in message
        wait_until(
            lambda: arrived(spec(alone), f"east.{topic}"),
            until=lambda found: found == 500,
            within_s=WITHIN_S,
        )
    assert read(spec(alone), f"east.{topic}") == read(spec(east), topic)
