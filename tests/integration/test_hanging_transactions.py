"""A transaction of a real producer that is neither committed nor aborted."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import confluent_kafka
from support.flows import manifest, spec
from support.records import count, make_topic, numbered, produce, unique

from headrace.api import Condition, ReplicationFlow, TaskType
from headrace.api.partitions import TopicPartition
from headrace.assign import TaskId
from headrace.connect import DriverIdentity
from headrace.connect.context import FlowContext
from headrace.connect.hanging_transactions import HangingTransactions
from headrace.movers import Copied, CopyFrom
from headrace.sandbox import Cluster

WaitUntil = Callable[..., Any]


class ShiftedClock:
    """The machine's, of which a test may skip some."""

    skipped_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped_s

    def time(self) -> float:
        return time.time() + self.skipped_s


def test_a_transaction_that_stays_open_is_named_with_its_first_offset_until_it_is_aborted(
    east: Cluster, west: Cluster, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(east), unique("open"), 1)
    copy = make_topic(spec(west), f"east.{topic}", 1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": east.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(30)
    produce(spec(east), topic, numbered(5, 1))
    producer.begin_transaction()
    producer.produce(topic, b"never committed")
    assert producer.flush(30) == 0
    produce(spec(east), topic, numbered(3, 1))

    clock, at = ShiftedClock(), TopicPartition(topic, 0)
    flow = ReplicationFlow.model_validate(manifest("open", east, west, topic))
    context = FlowContext(flow, DriverIdentity("d", "d-1"), clock=clock)
    lane = context.mover.lane(TaskId("open", TaskType.SOURCE_TASK, 0), print, Copied())
    with closing(lane), ThreadPoolExecutor(1) as pool:
        transactions = HangingTransactions(context, pool)
        lane.open({at: CopyFrom(0, -1)})

        def observed() -> tuple[Condition, ...]:
            lane.run_once()
            transactions.observe(lane.state())
            return transactions.conditions

        def behind() -> tuple[int, int]:
            observed()
            return lane.state()[at].acknowledged, lane.state()[at].lag_records

        wait_until(behind, within_s=30, until=lambda now: now == (5, 4))
        clock.skipped_s += 71
        (found,) = wait_until(observed, within_s=30)
        assert f"{at} from offset 5 on, 4 offsets wait since" in found.message
        producer.abort_transaction(30)
        wait_until(observed, within_s=30, until=lambda conditions: conditions == ())
        wait_until(behind, within_s=30, until=lambda now: now[1] == 0)
    assert count(spec(west), copy) == 8
