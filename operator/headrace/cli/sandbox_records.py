"""``headrace sandbox produce`` and ``consume``: records of a topic as lines of text."""

import sys
import time
from collections.abc import Iterator
from itertools import islice

import click

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.errors import GaveUp, InvalidSpec, NotRunning
from headrace.kafka import (
    Admin,
    KafkaError,
    Message,
    Position,
    assign,
    make_consumer,
    make_producer,
    translate,
)
from headrace.sandbox import Sandbox, SandboxCluster

DELIVERY_TIMEOUT_MS = 30_000
"""Time-out for the delivery of a record. A killed broker restarts within 12 s."""

cluster_option = click.option("--cluster", metavar="NAME", help="Name of the cluster.")
sandbox_option = click.option(
    "--sandbox", metavar="NAME", help="Name of the sandbox, if several run."
)


@click.command()
@click.argument("topic")
@cluster_option
@sandbox_option
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="Number of partitions of a topic that is created.",
)
def produce(topic: str, cluster: str | None, sandbox: str | None, partitions: int) -> None:
    """Write each line of standard input as a record to TOPIC.

    The default is the first cluster of the sandbox. If the topic does not exist, it is created.

    Examples:
      echo hello | headrace sandbox produce orders
      headrace sandbox produce orders --cluster west --partitions 3 < lines.txt
    """
    where = _spec(selected_clusters(sandbox, cluster)[0])
    if Admin(where).create_topic(topic, partitions):
        click.echo(f"Topic {topic} did not exist. It was created on {where.alias}.", err=True)
    if sys.stdin.isatty():
        click.echo("Each line becomes a record; Ctrl-D ends.", err=True)

    failures: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = make_producer(where, {"message.timeout.ms": DELIVERY_TIMEOUT_MS})
    written = 0
    for line in sys.stdin.buffer:
        while True:
            try:
                producer.produce(topic, line.rstrip(b"\r\n"), on_delivery=acknowledged)
                break
            except BufferError:
                producer.poll(1)  # wait until a record of the full queue is acknowledged
        producer.poll(0)
        written += 1
    producer.flush()
    if failures:
        tried = f"write {len(failures)} of {written} records to {topic} on {where.alias}"
        raise translate(failures[0], tried)
    click.echo(f"{written} records written to {topic} on {where.alias}.", err=True)


@click.command()
@click.argument("topic")
@cluster_option
@sandbox_option
@click.option(
    "--from-beginning", is_flag=True, help="Records from the earliest offset, not only new ones."
)
@click.option(
    "--max-messages",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Number of records after which the command ends.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Time without a record after which the command ends, in seconds.",
)
def consume(
    topic: str,
    *,
    cluster: str | None,
    sandbox: str | None,
    from_beginning: bool,
    max_messages: int | None,
    timeout: float | None,
) -> None:
    """Print the values of the records in TOPIC, until Ctrl-C.

    The default is the last cluster of the sandbox. If the topic does not exist, the command waits
    for it.

    Examples:
      headrace sandbox consume east.orders --from-beginning
      headrace sandbox consume orders --cluster east --max-messages 10 --timeout 5
    """
    where = _spec(selected_clusters(sandbox, cluster)[-1])
    seen = 0
    for value in islice(_values(where, topic, from_beginning, timeout), max_messages):
        click.echo("null" if value is None else value)
        seen += 1
    if max_messages is not None and seen < max_messages:
        raise GaveUp(
            f"{seen} of {max_messages} records came from {topic} on {where.alias} before there was "
            f"none for {timeout:g} s"
        )


def _values(
    where: ClusterAccess, topic: str, from_beginning: bool, timeout_s: float | None
) -> Iterator[bytes | None]:
    """Yield the values of a topic's records, until no record has arrived for ``timeout_s``."""
    last = time.monotonic()

    def waiting() -> bool:
        return timeout_s is None or time.monotonic() < last + timeout_s

    admin = Admin(where)
    if topic not in admin.topics():
        from_beginning = True  # all records will be new
        click.echo(f"Waiting for topic {topic} on {where.alias} ...", err=True)
    while topic not in (topics := admin.topics()):
        if not waiting():
            return
        time.sleep(0.5)
    partitions = [TopicPartition(topic, number) for number in range(topics[topic])]
    start = Position.EARLIEST if from_beginning else Position.LATEST
    consumer = make_consumer(where)
    try:
        assign(consumer, admin.offsets(partitions, start).items())
        last = time.monotonic()
        while waiting():
            message = consumer.poll(0.1)
            if message is None:
                continue
            if error := message.error():
                if error.code() == KafkaError._PARTITION_EOF:
                    continue
                raise translate(error, f"read {topic} on {where.alias}")
            last = time.monotonic()
            yield message.value()
    finally:
        consumer.close()


def selected_clusters(sandbox: str | None, cluster: str | None) -> tuple[SandboxCluster, ...]:
    """Return all clusters of the sandbox, or only ``cluster`` if it is not None."""
    meant = sandbox_meant(sandbox)
    return (meant.cluster(cluster),) if cluster is not None else meant.clusters


def sandbox_meant(sandbox: str | None) -> Sandbox:
    """Return the named sandbox, or the only one that runs."""
    running = [there for there in Sandbox.all() if there.running]
    if sandbox is not None:
        running = [Sandbox.open(sandbox)]
    if not running:
        raise NotRunning("no sandbox runs: `headrace sandbox up` starts one")
    if len(running) > 1:
        names = ", ".join(there.name for there in running)
        raise InvalidSpec(f"several sandboxes run ({names}): say which one with --sandbox")
    return running[0]


def _spec(cluster: SandboxCluster) -> ClusterAccess:
    return ClusterAccess(
        ClusterSpec(alias=cluster.name, bootstrap_servers=cluster.bootstrap_servers)
    )
