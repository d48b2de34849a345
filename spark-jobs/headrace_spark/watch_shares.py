"""What each consumer of the probe reads, of both sides."""

from typing import NamedTuple

from headrace.api import Partitioning, TopicPartition
from headrace.mirror_test import Run

MOST_PER_SECOND = 20_000
"""Of the load, for each consumer: beyond, the mirror's own share is not measured. The source's
consumer takes time from the target's, in the same process, and both would be late."""

Starts = dict[TopicPartition, int]
"""Partitions, and where to begin."""


class Share(NamedTuple):
    """What one consumer of each side reads."""

    target: Starts
    source: Starts


def share(run: Run, target: Starts, origins: Starts) -> Share:
    """With the partitions of the source whose messages come to these of the target: where
    partitions are not preserved, any of them may. With none of a load that is too fast for both."""
    if not origins or run.test.spec.partitioning is not Partitioning.PRESERVED:
        return Share(target, origins)
    mirrored = {TopicPartition(run.first_topics[at.topic], at.partition): at for at in origins}
    return Share(target, {at: origins[at] for to in target if (at := mirrored.get(to))})


def consumers(run: Run, partitions: int) -> int:
    """How many follow so many partitions of the target: as many as there are producers, as what
    those can send these can read; but no more than one a partition."""
    return min(run.test.spec.load.producers, partitions)


def times_both(run: Run, partitions: int) -> bool:
    """Whether a consumer can follow the source beside the target without being late for both."""
    load = run.test.spec.load
    preserved = run.test.spec.partitioning is Partitioning.PRESERVED
    readers = consumers(run, partitions) if preserved else 1
    rate = load.messages_per_second
    return rate is not None and rate * len(run.first_topics) <= MOST_PER_SECOND * readers
