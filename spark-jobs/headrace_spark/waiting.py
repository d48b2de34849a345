"""Waits until the target has what the load sent, or until the time that it has is over."""

import time
from collections.abc import Callable
from pathlib import Path

from headrace.api import Partitioning, TopicPartition
from headrace.kafka import Admin, Position, assign, journal, make_consumer
from headrace.mirror_test import LoadManifest, Run
from headrace_spark import messages, topics

_POLL_S = 0.5
_BEGIN_POLL_S = 0.1


def wait_for_file(path: Path) -> None:
    """Return when it is there; who started this process creates it, or ends this process."""
    while not path.exists():
        time.sleep(_BEGIN_POLL_S)


def wait_for_sentinels(run: Run, manifest: LoadManifest, on_wait: Callable[[int], None]) -> None:
    """Return when every end sentinel is on the target, or the time it has is over.

    Only a moment to begin: what arrived is decided by reading the whole range afterwards.
    ``on_wait`` gets the number of sentinels that are still open, now and then.
    """
    deadline_s = manifest.finished_ms / 1000 + run.test.spec.settle_seconds
    expected = {(run.topics[t.name], p) for t in manifest.topics for p in range(t.partitions)}
    assigned: dict[str, int] = {}
    consumer = make_consumer(run.target)
    try:
        while expected and time.time() < deadline_s:
            there = topics.on_target(run)
            if there != assigned:
                assign(consumer, _from_the_end_of_the_load(run, manifest, there))
                assigned = there
            on_wait(len(expected))
            refresh_at = time.monotonic() + 1
            while expected and time.monotonic() < refresh_at:
                message = consumer.poll(0.1)
                if message is None or not journal.is_record(message, "read the end sentinels"):
                    continue
                sighting = messages.recognise(message, run.name.encode())
                if sighting is not None and sighting.sentinel is not None:
                    # It has arrived, wherever it lies; a wrong place is for the comparison.
                    topic = run.topics.get(sighting.topic or "", message.topic() or "")
                    expected.discard((topic, sighting.sentinel))
    finally:
        consumer.close()


def wait_for_all(run: Run, manifest: LoadManifest) -> None:
    """Return when the target has as many records as were sent, or the time it has is over.

    Where partitions are not preserved, a sentinel says nothing of the records of other partitions:
    they may still be on their way. Whether it is these records, the comparison decides.
    """
    sent = manifest.acknowledged + sum(t.partitions for t in manifest.topics)
    known = {run.topics[t.name]: sum(t.target_start_offsets) for t in manifest.topics}
    while time_left_s(run, manifest) > 0:
        ends = topics.ends(run.target, topics.on_target(run))
        if sum(sum(ends[name]) - known[name] for name in ends) >= sent:
            return
        time.sleep(_POLL_S)


def time_left_s(run: Run, manifest: LoadManifest) -> float:
    """How long records may still arrive that no sentinel answers for; 0 where the partitions are
    preserved: there each has its own."""
    if run.test.spec.partitioning is Partitioning.PRESERVED:
        return 0.0
    deadline_s = manifest.finished_ms / 1000 + run.test.spec.settle_seconds
    return max(deadline_s - time.time(), 0.0)


def _from_the_end_of_the_load(
    run: Run, manifest: LoadManifest, there: dict[str, int]
) -> list[tuple[TopicPartition, int]]:
    """The first offset of each partition that is not older than the last acknowledgement."""
    partitions = [TopicPartition(name, p) for name, count in there.items() for p in range(count)]
    admin = Admin(run.target)
    ends = admin.offsets(partitions, Position.LATEST)  # first: what is written now comes after
    since = admin.offsets_at(partitions, manifest.finished_ms)
    return [(at, since[at] if since[at] >= 0 else ends[at]) for at in partitions]
