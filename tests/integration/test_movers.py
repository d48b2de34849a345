"""What `mover: Auto` finds out about real clusters."""

from collections.abc import Callable

import pytest
from support.flows import spec

from headrace.movers.batch.requirements import NoTransactions, check_clusters
from headrace.sandbox import Cluster


def test_clusters_that_have_what_batch_needs(east: Cluster, west: Cluster) -> None:
    check_clusters(spec(east), spec(west))


def test_a_target_that_cannot_create_the_topic_of_transactions(
    east: Cluster, start_cluster: Callable[..., Cluster]
) -> None:
    alone = start_cluster("alone", properties={"transaction.state.log.replication.factor": "3"})
    check_clusters(spec(alone), spec(east))
    with pytest.raises(NoTransactions, match=r"alone \(.*\) has no transaction coordinator"):
        check_clusters(spec(east), spec(alone), coordinator_s=2)
