"""Random loads, and the copies that faulty mirrors make of them, for the mirror test's checks.

A case has two topics of its own. ``mirror_oracle`` finds its faults by brute force.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from support.raw_records import Raw, raw

from headrace.api import MessageFormat, Partitioning, TopicPartition
from headrace.mirror_test.load import LoadedTopic, PartitionSummary, Stream
from headrace_spark import messages

RUN = "run"
NOW_MS = 1_795_000_000_000
_EARLIER_MS = NOW_MS - 60_000
_MESSAGE_BYTES = 200
Logs = dict[TopicPartition, list[Raw]]


@dataclass
class Case:
    """A load, with its records on the source and on the target."""

    name: str
    partitioning: Partitioning
    keys: int
    same_offsets: bool
    """Whether the mirror promised equal offsets."""
    topics: tuple[LoadedTopic, ...]
    streams: tuple[Stream, ...]
    source: list[Raw] = field(default_factory=list)
    target: list[Raw] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Faults that were put into the case, for the message of a failure."""
    source_has_lost: bool = False


def random_case(seed: int, partitioning: Partitioning, *, same_offsets: bool = False) -> Case:
    """Return the case that a seed determines."""
    dice = random.Random(f"{partitioning}/{seed}")
    partitions = dice.choice([1, 2, 2, 3])
    case = Case(
        name=f"{partitioning.lower()}{seed}",
        partitioning=partitioning,
        keys=(keys := partitions + dice.randrange(2)),
        same_offsets=same_offsets,
        topics=(),
        streams=(),
    )
    format = dice.choice(list(MessageFormat))
    logs: Logs = {}
    for topic in (f"{case.name}.orders", f"{case.name}.users"):
        sent = {f"{RUN}-{n}-0": dice.randrange(8) for n in range(dice.randint(1, 2))}
        shape = _Shape(topic, keys, partitions)
        logs |= _sent(dice, shape, sent, format)
        failed = {who: _failed(dice, number) for who, number in sent.items()}
        for at in logs:
            if at.topic == topic:
                logs[at] = [r for r in logs[at] if not _is_lost(dice, r, failed)]
        case.topics += (
            LoadedTopic(
                name=topic,
                keys=keys,
                start_offsets=(0,) * partitions,
                end_offsets=(100,) * partitions,
                target_start_offsets=(),
            ),
        )
        case.streams += tuple(
            _stream(shape, who, number, failed[who]) for who, number in sent.items()
        )
    _break_the_load(dice, case, logs)
    case.source = _laid_out(dice, logs)
    copies = _mirrored(dice, case, partitions)
    for _ in range(dice.choice([0, 1, 2, 3, 4, 5, 6])):
        name = dice.choice([*_MUTATIONS, *3 * _MOVING])
        at = dice.choice(sorted(copies))
        _MUTATIONS[name](dice, copies, at)
        case.done.append(f"{name} in {at}")
    case.target = _at_their_offsets(dice, copies) if same_offsets else _laid_out(dice, copies)
    return case


class _Shape(NamedTuple):
    topic: str
    keys: int
    partitions: int

    def place(self, seq: int) -> TopicPartition:
        """Return the source partition of a number."""
        return TopicPartition(self.topic, messages.partition_of(seq, self.keys, self.partitions))


def _sent(dice: random.Random, shape: _Shape, sent: dict[str, int], format: MessageFormat) -> Logs:
    """Return every number of every producer, each in its order, then the sentinels."""
    logs: Logs = {TopicPartition(shape.topic, p): [] for p in range(shape.partitions)}
    writers = {who: messages.MessageFactory(who, _MESSAGE_BYTES, format) for who in sent}
    turns = [who for who, number in sent.items() for _ in range(number)]
    dice.shuffle(turns)
    next_seq = dict.fromkeys(sent, 0)
    for who in turns:
        seq = next_seq[who]
        next_seq[who] += 1
        at, key = shape.place(seq), messages.key_of(seq, shape.keys)
        logs[at].append(raw(at, 0, writers[who].message(at, seq, NOW_MS), NOW_MS, key))
    for at, log in logs.items():
        end = messages.sentinel(RUN, at, NOW_MS, format)
        log.append(raw(at, 0, end, NOW_MS, at.partition))
    return logs


def _failed(dice: random.Random, sent: int) -> tuple[tuple[int, int], ...]:
    if sent == 0 or dice.random() < 0.7:
        return ()
    first = dice.randrange(sent)
    return ((first, dice.randrange(first, sent)),)


def _is_lost(
    dice: random.Random, record: Raw, failed: dict[str, tuple[tuple[int, int], ...]]
) -> bool:
    """Return whether an unacknowledged record is missing on the source; half of them are stored."""
    who, seq, *_ = (record.value or b"").decode(errors="replace").split(";")
    if record.is_sentinel or not any(a <= int(seq) <= b for a, b in failed[who]):
        return False
    return dice.random() < 0.5


def _stream(shape: _Shape, who: str, sent: int, failed: tuple[tuple[int, int], ...]) -> Stream:
    good = [n for n in range(sent) if not any(a <= n <= b for a, b in failed)]
    by_partition: dict[int, list[int]] = {}
    for seq in good:
        by_partition.setdefault(shape.place(seq).partition, []).append(seq)
    return Stream(
        producer=who,
        topic=shape.topic,
        sent=sent,
        failed=failed,
        partitions=tuple(
            PartitionSummary(partition=p, first=s[0], last=s[-1], count=len(s), checksum=0)
            for p, s in sorted(by_partition.items())
        ),
    )


def _break_the_load(dice: random.Random, case: Case, logs: Logs) -> None:
    """Delete acknowledged records of the source now and then, or cut the manifest."""
    at = dice.choice(sorted(logs))
    if dice.random() < 0.1:
        logs[at].pop(dice.randrange(len(logs[at])))
        case.source_has_lost = True
        case.done.append(f"lost by the source in {at}")
    if dice.random() < 0.1:
        cut, *rest = dice.sample(case.streams, len(case.streams))
        case.done.append(f"not in the manifest: {cut.producer} in {cut.topic}")
        case.streams = tuple(rest)


def _laid_out(dice: random.Random, logs: Logs) -> list[Raw]:
    """Return the records with offsets; gaps between them stand for markers, for example."""
    found = []
    for at, log in sorted(logs.items()):
        offset = 0
        for record in log:
            offset += dice.choice([1, 1, 1, 2])
            found.append(record._replace(topic=at.topic, partition=at.partition, offset=offset - 1))
    return found


def _at_their_offsets(dice: random.Random, logs: Logs) -> list[Raw]:
    """Return each record at its source offset, or after the record before it.

    Later holes make up for a surplus of records. Now and then a record fills a hole.
    """
    found = []
    for at, log in sorted(logs.items()):
        end = 0
        for record in log:
            offset = end if dice.random() < 0.05 else max(end, record.offset)
            end = offset + 1
            found.append(record._replace(topic=at.topic, partition=at.partition, offset=offset))
    return found


def _mirrored(dice: random.Random, case: Case, partitions: int) -> Logs:
    """Return the copies that a correct mirror makes of the source."""
    more = 0 if case.partitioning is Partitioning.PRESERVED else dice.randrange(2)
    copies: Logs = {
        TopicPartition(topic.name, p): [] for topic in case.topics for p in range(partitions + more)
    }
    for record in case.source:
        to = record.partition
        if case.partitioning is Partitioning.BY_KEY:
            to = (int(record.key or b"") * 5 + 1) % (partitions + more)
        copies[TopicPartition(record.topic, to)].append(record)
    return copies


Mutation = Callable[[random.Random, Logs, TopicPartition], None]


def _drop(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
    if logs[at]:
        logs[at].pop(dice.randrange(len(logs[at])))


def _drop_last(_: random.Random, logs: Logs, at: TopicPartition) -> None:
    if places := [n for n, record in enumerate(logs[at]) if not record.is_sentinel]:
        logs[at].pop(places[-1])


def _drop_sentinel(_: random.Random, logs: Logs, at: TopicPartition) -> None:
    logs[at] = [record for record in logs[at] if not record.is_sentinel]


def _drop_partition(_: random.Random, logs: Logs, at: TopicPartition) -> None:
    logs[at] = []


def _drop_producer(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
    who = b"%s-%d-" % (RUN.encode(), dice.randrange(2))
    for one, log in logs.items():
        if one.topic == at.topic:
            logs[one] = [r for r in log if not (r.value or b"").startswith(who)]


def _double(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
    if logs[at]:
        copy = dice.choice(logs[at])
        logs[at].insert(dice.randint(0, len(logs[at])), copy)


def _double_elsewhere(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
    """Copy a record into another partition, or another topic."""
    others = [to for to in sorted(logs) if to != at]
    near = [to for to in others if to.topic == at.topic]
    if logs[at]:
        to = logs[dice.choice([*near, *near, *others])]
        to.insert(dice.randint(0, len(to)), dice.choice(logs[at]))


def _swap(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
    if logs[at]:
        log, a, b = logs[at], dice.randrange(len(logs[at])), dice.randrange(len(logs[at]))
        log[a], log[b] = log[b], log[a]


def _move(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
    """Move a record to another partition, or into the other topic."""
    if logs[at]:
        record = logs[at].pop(dice.randrange(len(logs[at])))
        to = logs[dice.choice(sorted(logs))]
        to.insert(dice.randint(0, len(to)), record)


def _exchange_topics(_: random.Random, logs: Logs, at: TopicPartition) -> None:
    for other in sorted(logs):
        if other.topic != at.topic and other.partition == at.partition:
            logs[at], logs[other] = logs[other], logs[at]


def _changing(change: Callable[[random.Random, Raw], Raw]) -> Mutation:
    def mutate(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
        if logs[at]:
            place = dice.randrange(len(logs[at]))
            logs[at][place] = change(dice, logs[at][place])

    return mutate


def _another_byte(dice: random.Random, text: bytes | None) -> bytes:
    if not text:
        return b"!"
    at = dice.randrange(len(text))
    return text[:at] + (b"?" if text[at : at + 1] == b"!" else b"!") + text[at + 1 :]


def _header_changed(dice: random.Random, record: Raw) -> Raw:
    headers = list(record.headers)
    if headers:
        place = dice.randrange(len(headers))
        headers[place] = (headers[place][0], _another_byte(dice, headers[place][1]))
    return record._replace(headers=tuple(headers))


def _header_lost(dice: random.Random, record: Raw) -> Raw:
    lost = dice.randrange(max(len(record.headers), 1))
    return record._replace(headers=tuple(h for n, h in enumerate(record.headers) if n != lost))


def _alien(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
    """Insert a message that was never sent, from a known or an unknown producer."""
    who = f"{RUN}-{dice.choice([0, 9])}-0"
    message = messages.MessageFactory(who, _MESSAGE_BYTES).message(
        at, 50 + dice.randrange(2), NOW_MS
    )
    logs[at].insert(dice.randint(0, len(logs[at])), raw(at, 0, message, NOW_MS, 0))


def _of_another_run(run: str, sent_ms: int) -> Mutation:
    def mutate(dice: random.Random, logs: Logs, at: TopicPartition) -> None:
        writer = messages.MessageFactory(
            f"{run}-0-0", _MESSAGE_BYTES, dice.choice(list(MessageFormat))
        )
        first = dice.randrange(20)
        for seq in range(first, first + dice.randint(1, 4)):
            logs[at].append(raw(at, 0, writer.message(at, seq, sent_ms), sent_ms, 0))

    return mutate


_MUTATIONS: dict[str, Mutation] = {
    "dropped": _drop,
    "last one dropped": _drop_last,
    "sentinel dropped": _drop_sentinel,
    "partition dropped": _drop_partition,
    "producer dropped": _drop_producer,
    "doubled": _double,
    "doubled elsewhere": _double_elsewhere,
    "two swapped": _swap,
    "moved": _move,
    "topics exchanged": _exchange_topics,
    "byte of the key": _changing(lambda dice, r: r._replace(key=_another_byte(dice, r.key))),
    "byte of the value": _changing(lambda dice, r: r._replace(value=_another_byte(dice, r.value))),
    "value lost": _changing(lambda _, r: r._replace(value=None)),
    "key lost": _changing(lambda _, r: r._replace(key=None)),
    "timestamp": _changing(lambda _, r: r._replace(timestamp_ms=r.timestamp_ms + 1)),
    "byte of a header": _changing(_header_changed),
    "header lost": _changing(_header_lost),
    "headers lost": _changing(lambda _, r: r._replace(headers=())),
    "header added": _changing(lambda _, r: r._replace(headers=(*r.headers, ("more", b"1")))),
    "alien": _alien,
    "earlier run": _of_another_run("earlier", _EARLIER_MS),
    "later run": _of_another_run("run1", NOW_MS + 1),
}
_MOVING = ["doubled", "doubled elsewhere", "two swapped", "moved"]
"""These find most in checks that are wrong."""
