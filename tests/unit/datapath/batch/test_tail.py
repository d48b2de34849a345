"""Tail of a log under a quota. tests/unit/datapath/batch/test_damage.py has damaged answers."""

from support.fake_broker import Serve
from support.wire_kafka import wire_cluster

from headrace.api import TopicPartition
from headrace.datapath.tail import Tail
from headrace.kafka.wire import EventLoop
from headrace.replication.reconcile import Record


def test_tail_waits_longer_than_its_patience_while_a_quota_delays_it(
    loop: EventLoop, serve: Serve
) -> None:
    source = wire_cluster(serve, "east")
    source.append(b"a")
    source.delays_s = [0.4, 0.4, 0.4]
    cluster = source.client(loop)
    try:
        tail = Tail(cluster, TopicPartition("orders", 0), 0, patience_s=0.2)
        found = list(tail.of_source())
    finally:
        cluster.close()
    assert [one.value for one in found if isinstance(one, Record)] == [b"a"]
