"""A planned fail-over by kubectl of a flow that preserves offsets, as GitOps does it."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from cluster.real import Cluster
from e2e.flow import FlowInPods
from e2e.stage import (
    flow_between_brokers,
    in_operator,
    kafka_cluster,
    make_topic,
    records,
)

from headrace import __version__

Wait = Callable[..., Any]
Document = dict[str, Any]
GROUPS = 12

pytestmark = pytest.mark.usefixtures("brokers", "release")

FILL = """
import time
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition as Place

def commit(consumer, place):
    deadline = time.monotonic() + 60
    while True:
        try:
            return consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:  # a coordinator that loads refuses at first
            if "COORDINATOR" not in error.args[0].name() or time.monotonic() > deadline:
                raise
        time.sleep(0.5)

servers = {{"bootstrap.servers": {servers!r}}}
producer = Producer({{**servers, "transactional.id": {topic!r}}})
producer.init_transactions(60)
for turn, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 4):
    producer.begin_transaction()
    for number in range(10 + turn):
        producer.produce({topic!r}, str(number), partition=0)
    producer.flush(60)
    ends(60)
# A coordinator answers before the markers are written; it names no owner before they are.
Producer({{**servers, "transactional.id": {topic!r}}}).init_transactions(60)
at = TopicPartition({topic!r}, 0)
end = admin.offsets([at], Position.LATEST)[at]
for number in range({groups}):
    consumer = Consumer({{**servers, "group.id": {topic!r} + "-" + str(number)}})
    offset = round(end * number / ({groups} - 1))
    commit(consumer, Place({topic!r}, 0, offset))
    consumer.close()
"""
"""A topic with committed and aborted records, and groups all over it."""

READ_ON = """
import json
import subprocess
import sys
from confluent_kafka import Consumer, TopicPartition as Place
found = []
for number in range({groups}):
    consumer = Consumer({{
        "bootstrap.servers": {servers!r}, "group.id": {group!r} + "-" + str(number),
        "auto.offset.reset": "error", "enable.auto.commit": False, "enable.partition.eof": True,
    }})
    (committed,) = consumer.committed([Place({topic!r}, 0)], 60)
    consumer.assign([Place({topic!r}, 0)])
    message = consumer.poll(60)
    record = None if message.error() else [message.offset(), message.value().decode()]
    found.append([committed.offset, record])
    consumer.close()
print(json.dumps(found))
"""
"""Program that prints each group's offset, and the record at which it resumes."""


def job(verb: str, flow: Document, namespace: str, image: str, *options: str) -> list[Document]:
    """Return the manifests that ``headrace job`` prints."""
    about = ("-f", "-", "-n", namespace, "--image", f"{image}:{__version__}", "--", *options)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "job", verb, "mirror", *about],
        input=yaml.safe_dump(flow),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return list(yaml.safe_load_all(done.stdout))


def test_a_planned_fail_over_by_kubectl_leaves_the_offsets_as_they_are(
    cluster: Cluster, namespace: str, wait_until: Wait
) -> None:
    topic = f"preserved-{namespace}"
    document = flow_between_brokers(topic, replicas=1)
    document["spec"] |= {
        "offsets": {"mode": "Preserved"},
        "groups": {"include": [f"{topic}-.*"]},
        "heartbeats": {"enabled": False},
    }
    flow = FlowInPods(cluster, namespace, "mirror")

    def read_on(alias: str, name: str) -> Any:
        about = {"servers": kafka_cluster(alias)["bootstrapServers"], "topic": name}
        return json.loads(
            in_operator(cluster, alias, READ_ON.format(group=topic, groups=GROUPS, **about))
        )

    make_topic(cluster, "east", topic, 1)
    cluster.apply(document, namespace=namespace)
    servers = kafka_cluster("east")["bootstrapServers"]
    in_operator(cluster, "east", FILL.format(topic=topic, groups=GROUPS, servers=servers))
    end = records(cluster, "east", topic, 1)
    flow.kubectl("wait", "rflow/mirror", "--for=condition=Ready", "--timeout=300s")
    wait_until(lambda: records(cluster, "west", f"east.{topic}", 1) == end)

    flow.patch({"spec": {"state": "Stopped"}})
    wait_until(lambda: not flow.pods())

    def run(verb: str, image: str, *options: str) -> str:
        """Run a Job that has to succeed, and return its log."""
        made = job(verb, document, namespace, image, *options)
        cluster.apply(*made, namespace=namespace)
        name = f"job/headrace-{verb}-mirror"
        status = ("get", name, "-o", "jsonpath={.status.conditions[*].type}")
        ended = wait_until(lambda: {"Complete", "Failed"} & set(flow.kubectl(*status).split()))
        log = flow.kubectl("logs", name)
        assert "Complete" in ended, log
        return log

    assert "records of 1 topic are on the target" in run("audit", "headrace-spark", "--settle=1")
    said = run("failover", "headrace", "-o", "json")
    found = json.loads(said[said.index("{") :])
    assert (found["done"], found["notCopied"], found["problems"]) == ("failed over", 0, [])
    assert [one["exact"] for one in found["groups"]] == [True] * GROUPS
    assert all(one["sourceOffset"] == one["targetOffset"] for one in found["groups"])
    (partition,) = found["partitions"]
    assert (partition["sourceEnd"], partition["copiedTo"]) == (end, end)

    goes_on = read_on("west", f"east.{topic}")
    assert goes_on == read_on("east", topic)
    assert len({offset for offset, _ in goes_on}) == GROUPS
