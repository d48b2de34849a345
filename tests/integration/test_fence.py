"""Earlier writers of a partition are fenced on real brokers, and nothing of theirs is repeated."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.flows import spec
from support.lanes import (
    WITHIN_S,
    batch_mover,
    lane_of,
    partitions,
    run_until_caught_up,
)
from support.records import make_topic, numbered, produce, read, unique

from headrace.api import TopicPartition
from headrace.movers import Before, CopyFrom, Lane, Resumed
from headrace.replication.reconcile import Outcome
from headrace.sandbox import Cluster, ClusterPlan, Sandbox

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    plans = [ClusterPlan("east"), ClusterPlan("west")]
    with Sandbox.start("fence", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
        yield sandbox


def east_and_west(sandbox: Sandbox, records: int) -> tuple[Cluster, Cluster, str]:
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    topic = make_topic(spec(east), unique("fenced"), 2)
    make_topic(spec(west), f"east.{topic}", 2)
    produce(spec(east), topic, numbered(records, 2))
    return east, west, topic


def errors_of(lane: Lane, wait_until: WaitUntil) -> list[str]:
    def errors() -> list[str]:
        lane.run_once()
        return [str(one.error) for one in lane.problems()]

    found: list[str] = wait_until(errors, within_s=WITHIN_S, until=lambda found: len(found) == 2)
    return found


def test_an_earlier_writer_is_refused_and_what_it_wrote_is_not_copied_again(
    sandbox: Sandbox, wait_until: WaitUntil
) -> None:
    east, west, topic = east_and_west(sandbox, 3_000)
    both = partitions(topic, 2)
    mover, next_mover = batch_mover(east, west), batch_mover(east, west)
    with lane_of(mover) as (old, _, _):
        writer = mover.fencing.identify(unique("headrace-old"))
        old.open({one: CopyFrom(0, -1, writer=writer) for one in both})
        run_until_caught_up(old, spec(east), both, wait_until)

        # Nothing of this is in progress: the next owner is told that all is still to be copied.
        own = next_mover.fencing.identify(unique("headrace-new"))
        began = time.monotonic()
        before = {
            one: Before(TopicPartition(f"east.{topic}", one.partition), 0, 0, frozenset({writer}))
            for one in both
        }
        found = next_mover.fencing.resume(own, before)
        resumes = {at: one for at, one in found.items() if isinstance(one, Resumed)}
        print(f"fenced and compared in {1000 * (time.monotonic() - began):.0f} ms")
        assert [resume.outcome for resume, _ in resumes.values()] == [Outcome.AGREES] * 2
        assert sum(resume.copied for resume, _ in resumes.values()) == 3_000

        produce(spec(east), topic, numbered(1_000, 2))
        with lane_of(next_mover) as (lane, copied, _):
            lane.open(
                {
                    one: CopyFrom(resume.source_offset, -1, resume.target_offset, writer=own)
                    for one, (resume, _) in resumes.items()
                }
            )
            run_until_caught_up(lane, spec(east), both, wait_until)
        assert copied.records == 1_000
        for error in errors_of(old, wait_until):
            assert "INVALID_PRODUCER_EPOCH" in error
    assert read(spec(west), f"east.{topic}") == read(spec(east), topic)
