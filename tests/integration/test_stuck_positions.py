"""Data of real brokers that cannot be copied: an open transaction, damaged batches."""

import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from crc32c import crc32c
from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.records import arrived, count, make_topic, numbered, produce, unique

from headrace.api import Condition, ReplicationFlow, TaskType
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.connect import DriverIdentity
from headrace.connect.runtime.context import FlowContext
from headrace.connect.source.observing import StuckPositions
from headrace.datapath import CopiedCounts, CopyFrom, Lane
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka import Admin
from headrace.sandbox import SandboxCluster

WaitUntil = Callable[..., Any]


class ShiftedClock:
    """The machine's, of which a test may skip some."""

    skipped_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped_s

    def time(self) -> float:
        return time.time() + self.skipped_s


class Scene:
    """A lane that copies partition 0 of a topic, with its detector of stuck positions."""

    def __init__(self, lane: Lane, at: TopicPartition, clock: ShiftedClock, stuck: StuckPositions):
        self.lane, self.at, self.clock, self.stuck = lane, at, clock, stuck

    def observe(self) -> dict[TopicPartition, HeadraceError]:
        self.lane.run_once()
        return dict(self.stuck.observe(self.lane.state()))

    def conditions(self) -> tuple[Condition, ...]:
        self.observe()
        return self.stuck.conditions

    def behind(self) -> tuple[int, int]:
        """Position and lag."""
        self.observe()
        reached = self.lane.state()[self.at]
        return reached.acknowledged, reached.lag_records


@contextmanager
def copying(topic: str, east: SandboxCluster, west: SandboxCluster) -> Iterator[Scene]:
    make_topic(spec(west), f"east.{topic}", 1)
    clock, at = ShiftedClock(), TopicPartition(topic, 0)
    flow = ReplicationFlow.model_validate(manifest("stuck", east, west, topic))
    context = FlowContext(flow, DriverIdentity("d", "d-1"), clock=clock)
    lane = context.mover.lane(TaskId("stuck", TaskType.SOURCE_TASK, 0), print, CopiedCounts())
    with closing(lane), ThreadPoolExecutor(1) as pool:
        lane.open({at: CopyFrom(0, -1)})
        yield Scene(lane, at, clock, StuckPositions(context, pool))


def test_a_transaction_that_stays_open_is_named_with_its_first_offset_until_it_is_aborted(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("open"), 1)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": east.bootstrap_servers,
            "transactional.id": topic,
            "transaction.timeout.ms": 900_000,  # the broker does not abort it during the test
        }
    )
    producer.init_transactions(WITHIN_S)
    produce(spec(east), topic, numbered(5, 1))
    producer.begin_transaction()
    producer.produce(topic, b"never committed")
    assert producer.flush(WITHIN_S) == 0
    produce(spec(east), topic, numbered(3, 1))

    with copying(topic, east, west) as scene:
        wait_until(scene.behind, until=lambda now: now == (5, 4))
        scene.clock.skipped_s += 71
        (found,) = wait_until(scene.conditions)
        assert f"{scene.at} from offset 5 on, 4 offsets wait since" in found.message
        producer.abort_transaction(WITHIN_S)
        wait_until(scene.conditions, until=lambda conditions: conditions == ())
        wait_until(scene.behind, until=lambda now: now[1] == 0)
    assert arrived(spec(west), f"east.{topic}") == 8


def damage(cluster: SandboxCluster, topic: str, change: Callable[[bytearray], None]) -> None:
    """Change the batch at offset 2 in the broker's file, which no process checks."""
    (log,) = cluster.brokers[0].folder.rglob(f"{topic}-0/00000000000000000000.log")
    with log.open("r+b") as file:
        data, at = file.read(), 0
        while struct.unpack_from(">q", data, at)[0] != 2:
            at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        batch = bytearray(data[at : at + size])
        change(batch)
        file.seek(at)
        file.write(batch)


def flip_a_bit(batch: bytearray) -> None:
    batch[-3] ^= 1


def claim_a_format_of_the_future(batch: bytearray) -> None:
    batch[16] = 9


def claim_a_codec_that_there_is_not(batch: bytearray) -> None:
    batch[22] |= 7
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))


def claim_a_record_longer_than_its_batch(batch: bytearray) -> None:
    batch[61:63] = b"\xfe\x7f"
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))


@pytest.fixture
def topic(east: SandboxCluster) -> Iterator[str]:
    """Write five batches of one record each; no broker starts again with the damaged log."""
    topic = make_topic(spec(east), unique("damaged"), 1)
    for record in numbered(5, 1):
        produce(spec(east), topic, [record])
    yield topic
    Admin(spec(east)).delete_topic(topic)


@pytest.mark.parametrize("change", [flip_a_bit, claim_a_format_of_the_future])
def test_a_damaged_batch_is_a_problem_of_its_partition_and_nothing_behind_it_is_copied(
    topic: str,
    east: SandboxCluster,
    west: SandboxCluster,
    wait_until: WaitUntil,
    change: Callable[[bytearray], None],
) -> None:
    damage(east, topic, change)
    with copying(topic, east, west) as scene:

        def problems() -> list[HeadraceError]:
            scene.observe()
            return [problem.error for problem in scene.lane.problems()]

        (error,) = wait_until(problems)
        assert isinstance(error, Fatal)
        assert f"could not read {scene.at} offset 2 of east" in str(error)
        scene.lane.settle(30)
        assert scene.behind()[0] <= 2
    assert count(spec(west), f"east.{topic}") <= 2


@pytest.mark.parametrize(
    "change",
    [
        flip_a_bit,
        claim_a_format_of_the_future,
        claim_a_codec_that_there_is_not,
        claim_a_record_longer_than_its_batch,
    ],
)
def test_the_batch_mover_stops_before_a_damaged_batch(
    *,
    topic: str,
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: WaitUntil,
    change: Callable[[bytearray], None],
) -> None:
    damage(east, topic, change)
    flow = manifest(unique("damaged"), east, west, topic)
    with FlowRun(tmp_path, [flow]) as run:
        ready = wait_until(
            lambda: run.condition("Ready"), until=lambda found: "offset" in found.get("message", "")
        )
        assert f"{topic}-0" in ready["message"]
    assert arrived(spec(west), f"east.{topic}") <= 2


def test_a_batch_that_the_client_leaves_without_a_word_is_found(
    topic: str, east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    damage(east, topic, claim_a_record_longer_than_its_batch)
    with copying(topic, east, west) as scene:
        wait_until(scene.behind, until=lambda now: now == (2, 3))
        scene.clock.skipped_s += 71
        (error,) = wait_until(scene.observe).values()
        assert isinstance(error, Retriable)
        assert f"could not read {scene.at} offset 2 of east" in str(error)
