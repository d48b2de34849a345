"""The contents of both clusters at the end, and the log of the run."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from soak.accounts import (
    COPYING,
    PARTITION_TAKEN,
    RENEWALS,
    TAKEN,
    Account,
    Arrival,
    Logged,
    Stored,
    account,
)
from soak.evidence import write_evidence
from soak.faults import Fault, FaultKind
from soak.stage import DRIVERS, PROGRESS, TOPICS, Stage
from soak.writers import Written, disputes
from support.flows import spec

from headrace.api.partitions import TopicPartition
from headrace.errors import Retriable
from headrace.kafka import Admin, KafkaError, KafkaException, Position, assign, make_consumer
from headrace.kafka.wire import Batch, split_batches
from headrace.replication import Progress, ProgressKey
from headrace.replication.ancestry import is_ancestry
from headrace.replication.first_start import is_first_start
from headrace.sandbox import SandboxCluster

_SILENCE_S = 30


@dataclass(frozen=True)
class Entry:
    """A record of a log."""

    partition: int
    offset: int
    at_s: float
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Books:
    """Accounts of all partitions."""

    accounts: Sequence[Account]
    source_problems: Sequence[str]
    """Acknowledged records that the source lost: if there are any, nothing is proved."""
    disputes: Sequence[str]
    """Findings of ``writers.disputes``."""


def close_books(
    stage: Stage,
    acknowledged: Mapping[tuple[str, int], int],
    faults: Sequence[Fault],
    *,
    caught_up: bool,
) -> Books:
    """Read both clusters, and account for every record."""
    progress, log = _progress(stage.target), read_log(stage.run.log)
    accounts, problems, disputed = [], [], []
    for topic, partitions in TOPICS.items():
        source = by_partition(read_entries(stage.source, topic))
        target = by_partition(read_entries(stage.target, f"{stage.source.name}.{topic}"))
        for partition in range(partitions):
            name, sent = f"{topic}-{partition}", source[partition]
            # The load's own producer may have written a record again when it had no answer.
            copies = copies_of(sent)
            numbers = [int(value.split()[0]) for value in copies]
            if numbers != list(range(len(numbers))):
                problems.append(f"the source holds {name} with gaps or out of order")
            if len(numbers) < (least := acknowledged[topic, partition]):
                problems.append(
                    f"the source acknowledged {least} records of {name}, and has {len(numbers)}"
                )
            arrivals = list(arrivals_of(target[partition], copies))
            stored = progress[topic, partition]
            disputed += disputes(name, written(stage.target, f"{stage.source.name}.{name}"), stored)
            write_evidence(stage.run.log.parent, name, arrivals, stored, faults)
            accounts.append(
                account(
                    name,
                    [entry.offset for entry in sent],
                    arrivals,
                    progress=stored,
                    faults=faults,
                    log=log,
                    caught_up=caught_up,
                )
            )
    return Books(accounts, problems, disputed)


def written(target: SandboxCluster, partition: str) -> list[Written]:
    """Return the batches of ``<topic>-<partition>`` in the files of the most complete replica."""
    replicas = [_batches(broker.data / partition) for broker in target.brokers]
    return [
        Written(
            one.base_offset,
            one.record_count,
            (one.producer_id, one.producer_epoch),
            one.base_sequence,
        )
        for one in max(replicas, key=len)
        if not one.control
    ]


def _batches(folder: Path) -> list[Batch]:
    segments = sorted(folder.glob("*.log"))  # none if it has no replica
    return split_batches(memoryview(b"".join(one.read_bytes() for one in segments))).batches


def copies_of(entries: Sequence[Entry]) -> dict[bytes, list[int]]:
    """Return the offsets of each value."""
    copies: dict[bytes, list[int]] = defaultdict(list)
    for entry in entries:
        copies[entry.value].append(entry.offset)
    return copies


def arrivals_of(
    target: Sequence[Entry], copies: Mapping[bytes, Sequence[int]]
) -> Iterator[Arrival]:
    """Yield arrivals. The copies of a record that the source holds twice are paired in order."""
    arrived: Counter[bytes] = Counter()
    for entry in target:
        offsets = copies.get(entry.value, (-1,))
        which = min(arrived[entry.value], len(offsets) - 1)
        arrived[entry.value] += 1
        yield Arrival(entry.offset, offsets[which], entry.at_s)


def read_entries(
    cluster: SandboxCluster, topic: str, isolation: str = "read_uncommitted"
) -> Iterator[Entry]:
    """Yield all entries of a topic; each partition in its order."""
    admin = Admin(spec(cluster))
    partitions = [TopicPartition(topic, n) for n in range(admin.topics()[topic])]
    ends = admin.offsets(partitions, Position.LATEST)
    consumer = make_consumer(spec(cluster), {"isolation.level": isolation})
    assign(consumer, [(at, 0) for at in partitions])
    waiting = {at.partition for at in partitions if ends[at]}
    with closing(consumer):
        while waiting:
            message = consumer.poll(_SILENCE_S)
            if message is None:
                raise Retriable(f"no record within {_SILENCE_S} s of {topic}, partitions {waiting}")
            partition = message.partition() or 0
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                waiting.discard(partition)
                continue
            offset, (_, stamp_ms) = message.offset() or 0, message.timestamp()
            key, value = message.key() or b"", message.value() or b""
            yield Entry(partition, offset, stamp_ms / 1000, key, value)


def read_log(file: Path) -> list[Logged]:
    """Return the lines that may explain a repeat."""
    return list(logged(file.read_text(errors="replace").splitlines()))


def ended_drivers(
    log: Sequence[Logged], faults: Sequence[Fault], drivers: int = DRIVERS
) -> list[str]:
    """Return a sentence if more drivers ended than were killed; each driver has a new name."""
    names = {line.driver for line in log if line.event == JOINED}
    kills = sum(fault.kind is FaultKind.DRIVER_KILLED for fault in faults)
    ended = len(names) - drivers - kills
    return [f"{ended} drivers ended that nobody had killed"] if ended > 0 else []


def logged(lines: Sequence[str]) -> Iterator[Logged]:
    """Yield the lines on renewed lanes, on lost drivers, and on tasks that were not released."""
    for line in lines:
        fields = {
            key: quoted or plain for key, quoted, plain in _FIELD.findall(line) if quoted or plain
        }
        event, why = fields.get("event", ""), fields.get("why", "")
        if event not in (JOINED, COPYING, *TAKEN, *RENEWALS):
            continue
        yield Logged(
            datetime.fromisoformat(fields["timestamp"]).timestamp(),
            event,
            "" if event == PARTITION_TAKEN else fields.get("task", ""),  # it is the connector's
            fields.get("driver", ""),
            fields.get("partition", ""),
            why,
        )


JOINED = "driver joined"
_FIELD = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))')


def _progress(target: SandboxCluster) -> dict[tuple[str, int], list[Stored]]:
    """Return the history of progress in the active segment, which is never compacted."""
    history: dict[tuple[str, int], list[Stored]] = defaultdict(list)
    for entry in read_entries(target, PROGRESS):
        if entry.value and not (is_first_start(entry.key) or is_ancestry(entry.key)):
            key, progress = ProgressKey.decode(entry.key), Progress.decode(entry.value)
            task, _, driver = progress.owner.partition(" on ")
            task = task.rpartition("/")[2]  # without its namespace, as in the log
            writer = progress.writer
            stored = Stored(
                entry.at_s,
                task,
                driver,
                progress.epoch,
                progress.source_offset,
                progress.target_offset,
                (writer.producer_id, writer.producer_epoch) if writer else None,
                bool(progress.fencing),
            )
            history[key.topic, key.partition].append(stored)
    return history


def by_partition(entries: Iterator[Entry]) -> dict[int, list[Entry]]:
    found: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.partition].append(entry)
    return found
