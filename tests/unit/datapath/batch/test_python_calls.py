"""Cost of the copy path, counted in calls of Python functions for each batch."""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from support.fake_broker import Serve
from support.patience import WITHIN_S
from support.stored import content, log_batch
from support.wire_kafka import TOPIC, wire_cluster

from headrace.api import TopicPartition
from headrace.api.flow import BatchVerification
from headrace.assign import TaskId
from headrace.datapath import BatchMover, CopiedCounts, CopyFrom
from headrace.datapath.resources import LaneSettings, shared_loop
from headrace.kafka.wire import StoredRecord

PARTITIONS, BATCHES, RECORDS = 64, 64, 16
"""A request has a batch of each partition that its broker leads."""
WARM_UP = 4
"""Batches of each partition that are copied before calls are counted."""
TRIES = 3
"""Maximum number of counts. On a busy machine responses arrive in small portions, so requests have
few batches. More calls in the code would be in each count."""


PER_PIECE = (
    "connection.py:Connection._ready",
    "connection.py:Connection._receive",
    "frames.py:FrameReader.received",
    "loop.py:EventLoop.run_once",
    "selectors.py:EpollSelector.select",
    "selectors.py:_BaseSelectorImpl._key_from_fd",
    "transport.py:Plain.receive",
)
"""Calls for each piece of a response. Pieces are small here, because the brokers of this test share
the interpreter with the copy, and their number differs from run to run."""


def test_copying_a_batch_takes_less_than_three_calls(serve: Serve) -> None:
    """Requests that are sent once a second, and the pieces of responses, are not counted."""
    source, target = (
        wire_cluster(serve, "east", PARTITIONS),
        wire_cluster(serve, "west", PARTITIONS),
    )
    content = batches()
    source.store(content[:WARM_UP], range(PARTITIONS))
    mover = BatchMover(
        source.access,
        target.access,
        lambda topic: topic,
        verification=lambda: BatchVerification.DISABLED,
        settings=LaneSettings(epoch_interval_s=3600.0),
    )
    copied, said = CopiedCounts(), list[str]()
    lane = mover.lane(TaskId(TOPIC, "SourceTask", 0), said.append, copied)

    def copy(end: int) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while any(one.acknowledged < end for one in lane.state().values()):
            lane.run_once()
            assert time.monotonic() < deadline_s, (lane.state(), lane.problems(), said)
            threading.Event().wait(0.005)

    try:
        lane.open({TopicPartition(TOPIC, at): CopyFrom(0, -1) for at in source.logs})
        copy(WARM_UP * RECORDS)
        for last in range(WARM_UP + BATCHES, WARM_UP + TRIES * BATCHES + 1, BATCHES):
            with counted() as calls:
                source.store(content[last - BATCHES : last], range(PARTITIONS))
                copy(last * RECORDS)
            for name in PER_PIECE:
                del calls[name]
            each = calls.total() / (PARTITIONS * BATCHES)
            if each < 3:
                break
    finally:
        lane.close()

    assert [len(one.batches) for one in target.logs.values()] == [last] * PARTITIONS
    assert copied.batches_copied == PARTITIONS * last
    assert each < 3, (each, "\n".join(map(str, calls.most_common(60))))


def batches() -> list[bytes]:
    """Return lz4 batches of 16 KiB that follow each other."""
    chance = random.Random(1)
    made = []
    for first in range(0, (WARM_UP + TRIES * BATCHES) * RECORDS, RECORDS):
        records = [
            StoredRecord(offset, 5, content(None, chance.randbytes(1000)))
            for offset in range(first, first + RECORDS)
        ]
        made.append(bytes(log_batch(records, codec="lz4")))
    return made


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count calls of Python functions in the loop's thread, by name."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_code.co_qualname}"] += 1

    in_loop(lambda: sys.setprofile(count))
    try:
        yield calls
    finally:
        in_loop(lambda: sys.setprofile(None))


def in_loop(call: Callable[[], None]) -> None:
    done = threading.Event()
    loop = shared_loop().loop
    loop.call_from_thread(call)
    loop.call_from_thread(done.set)
    assert done.wait(WITHIN_S), "the loop does not answer"
