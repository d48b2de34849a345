"""What is compared: a load on the source, sent by the load's job, and a copy on the target."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from headrace.api import MirrorTest, TopicPartition
from headrace.cli.mirror_test.spark_job import SparkJob
from headrace.errors import GaveUp
from headrace.kafka import Admin, Position, assign, make_consumer, make_producer
from headrace.mirror_test import LoadManifest, Run, Stage, documents
from headrace.sandbox import Sandbox

RUN = "bench"
MESSAGE_BYTES = 100
_PARTITIONS = 8
_PRODUCERS = 2
_BATCH = 10_000


@dataclass(frozen=True)
class Load:
    """What was sent, in which time from the first message to the last acknowledgement."""

    messages: int
    seconds: float
    ends: dict[TopicPartition, int]
    """Where the source's partitions end, with their sentinels."""


def described(sandbox: Sandbox, folder: Path, messages: int) -> Run:
    """The run, whose test is in the folder for the jobs."""
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    test = MirrorTest.model_validate(
        {
            "apiVersion": "headrace.dev/v1alpha1",
            "kind": "MirrorTest",
            "metadata": {"name": RUN},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": east.bootstrap_servers},
                "target": {"alias": "west", "bootstrapServers": west.bootstrap_servers},
                "targetTopic": "{topic}",
                "load": {
                    "topics": 1,
                    "partitions": _PARTITIONS,
                    "producers": _PRODUCERS,
                    "messages": messages,
                    "messageSizeBytes": MESSAGE_BYTES,
                },
            },
        }
    )
    text = test.model_dump_json(by_alias=True, exclude_none=True)
    (folder / documents.TEST).write_text(text)
    return Run(name=RUN, test=test)


def job(stage: Stage, folder: Path) -> SparkJob:
    """A job of the run, as ``headrace verify`` starts it."""
    arguments = ("--test", str(folder / documents.TEST), "--run", RUN, "--out", str(folder))
    return SparkJob(stage, _PRODUCERS, folder, *arguments)


def loaded(run: Run, folder: Path) -> Load:
    """Send the load; raises ``GaveUp`` when not all of it was acknowledged."""
    producing = job(Stage.PRODUCE, folder)
    while producing.running:
        list(producing.events(1.0))
    words = producing.last_words()
    producing.end()
    manifest = documents.read(folder / documents.MANIFEST, LoadManifest)
    if manifest is None or manifest.errors:
        raise GaveUp(words)
    return Load(
        manifest.acknowledged,
        (manifest.finished_ms - manifest.started_ms) / 1000,
        {
            TopicPartition(topic.name, partition): end
            for topic in manifest.topics
            for partition, end in enumerate(topic.end_offsets)
        },
    )


def copy(run: Run, load: Load) -> None:
    """Write every record of the source to the target, as it is."""
    admin = Admin(run.target)
    for topic in run.topics.values():
        admin.create_topic(topic, _PARTITIONS)
    admin.offsets(load.ends, Position.LATEST)  # waits until the partitions can be used
    producer = make_producer(run.target, {"queue.buffering.max.messages": 1_000_000})
    open_ones = {at for at, end in load.ends.items() if end}
    with closing(make_consumer(run.source)) as consumer:
        assign(consumer, [(at, 0) for at in open_ones])
        while open_ones:
            for record in consumer.consume(_BATCH, 0.1):
                if record.error():
                    continue  # the end of a partition
                while len(producer) > _BATCH * 10:
                    producer.poll(0.1)
                producer.produce(
                    topic := record.topic() or "",
                    record.value(),
                    record.key(),
                    partition := record.partition() or 0,
                    timestamp=record.timestamp()[1],
                    headers=record.headers() or [],
                )
                at = TopicPartition(topic, partition)
                if (record.offset() or 0) + 1 == load.ends[at]:
                    open_ones.discard(at)
            producer.poll(0)
    if producer.flush(60):
        raise GaveUp("the copy was not acknowledged within 60 s")
