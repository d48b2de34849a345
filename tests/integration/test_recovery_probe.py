"""Recovery of a mirror from a fault, by the messages that arrive on the target."""

import time

from support.flows import spec
from support.patience import WITHIN_S
from support.records import Record, has_all_markers, make_topic, produce_with, unique
from support.scenes import WaitUntil

from headrace.api import MirrorTest
from headrace.cli.mirror_test.faults import RecoveryProbe
from headrace.mirror_test import MirrorTestRun
from headrace.sandbox import SandboxCluster


def test_transaction_of_older_messages_is_no_recovery(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(west), unique("recovered"), 1)
    fault_ms = time.time_ns() // 1_000_000
    has_recovered = RecoveryProbe(run_of(east, west, topic)).since(fault_ms)

    def commit(sent_ms: int) -> None:
        message = Record(0, b"key", b"value", (), sent_ms)
        settings = {"transactional.id": topic}
        producer = produce_with(spec(west), topic, [message], **settings)
        assert not has_recovered()  # the message is not committed
        producer.commit_transaction(WITHIN_S)
        wait_until(lambda: has_all_markers(spec(west), topic))

    commit(fault_ms - 60_000)
    assert not has_recovered()
    commit(fault_ms)
    assert has_recovered()


def run_of(east: SandboxCluster, west: SandboxCluster, topic: str) -> MirrorTestRun:
    clusters = {
        side: {"alias": cluster.name, "bootstrapServers": cluster.bootstrap_servers}
        for side, cluster in (("source", east), ("target", west))
    }
    test = {**clusters, "targetTopic": "{topic}", "load": {"names": [topic]}}
    document = {"metadata": {"name": "t"}, "spec": test}
    return MirrorTestRun(name="r", test=MirrorTest.model_validate(document))
