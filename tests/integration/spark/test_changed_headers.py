"""Load of a flow that changes the headers of records."""

import zlib

from pyspark.sql import SparkSession
from support.flows import manifest as flow_manifest
from support.flows import spec
from support.records import Record, make_topic, produce, unique

from headrace.api import MirrorTest, ReplicationFlow, TopicPartition
from headrace.mirror_test import (
    LoadedTopic,
    LoadManifest,
    MirrorTestRun,
    PartitionSummary,
    Stream,
    resolve,
)
from headrace.sandbox import SandboxCluster
from headrace_spark.comparison import compare
from headrace_spark.messages import MessageFactory, producer_id, sentinel
from headrace_spark.session import Phases, now_ms

MESSAGES = 3
ADDED = ("via", "headrace")


def test_headers_that_the_flow_adds_are_no_corruption(
    spark: SparkSession, east: SandboxCluster, west: SandboxCluster
) -> None:
    topic, name = unique("load"), "r1"
    headers = {"add": [dict(zip(("name", "value"), ADDED, strict=True))]}
    flow = flow_manifest("f", east, west, topic)
    flow["spec"]["headers"] = headers
    load = {"names": [topic], "partitions": 1, "messages": MESSAGES}
    test = {"metadata": {"name": "t"}, "spec": {"flowName": "f", "load": load}}
    resolved = resolve(MirrorTest.model_validate(test), ReplicationFlow.model_validate(flow))
    run = MirrorTestRun(name=name, test=MirrorTest.model_validate_json(_json(resolved)))

    factory, at = MessageFactory(producer_id(name, 0, 0), 100), TopicPartition(topic, 0)
    sent = [factory.message(at, seq, now_ms()) for seq in range(MESSAGES)]
    log = [
        Record(0, b"0", message.value, tuple(message.headers), now_ms())  # type: ignore[arg-type]
        for message in (*sent, sentinel(name, at, now_ms()))
    ]
    via = (ADDED[0], ADDED[1].encode())
    copies = [one._replace(headers=(*one.headers, via)) for one in log]
    for cluster, named, records in ((east, topic, log), (west, run.topics[topic], copies)):
        make_topic(spec(cluster), named, 1)
        produce(spec(cluster), named, records)
    summary = PartitionSummary(
        partition=0,
        first=0,
        last=MESSAGES - 1,
        count=MESSAGES,
        checksum=sum(zlib.crc32(message.value) for message in sent),
    )
    found = compare(
        spark,
        run,
        LoadManifest(
            run=name,
            topics=(
                LoadedTopic(
                    name=topic,
                    keys=1,
                    start_offsets=(0,),
                    end_offsets=(MESSAGES + 1,),
                    target_start_offsets=(0,),
                ),
            ),
            streams=(
                Stream(
                    producer=producer_id(name, 0, 0),
                    topic=topic,
                    sent=MESSAGES,
                    partitions=(summary,),
                ),
            ),
            started_ms=now_ms(),
            finished_ms=now_ms(),
            acknowledged_per_second=(),
        ),
        Phases(),
    )
    assert (found.shares, found.contradictions, found.open_sentinels) == ((), (), ())


def _json(test: MirrorTest) -> str:
    """Return a resolved test as jobs receive it."""
    return test.model_dump_json(by_alias=True, exclude_none=True)
