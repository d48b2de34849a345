"""The topics of a load: created where they are missing, and described."""

from dataclasses import dataclass

from headrace.api import ClusterAccess, TopicPartition
from headrace.kafka import Admin, Position, journal
from headrace.mirror_test import Run


@dataclass(frozen=True)
class LoadTopic:
    """A topic of the source, before the load."""

    name: str
    target: str
    partitions: int
    keys: int


def prepare(run: Run) -> None:
    """Make the journal and the topics that the source lacks; the jobs of a run begin with this."""
    journal.create(run.source)
    admin = Admin(run.source)
    for name in run.topics.keys() - admin.topics().keys():
        admin.create_topic(name, run.test.spec.load.partitions)
    journal.wait_for_topics(admin, run.topics.keys())


def describe(run: Run) -> tuple[LoadTopic, ...]:
    """The load's topics. As many keys as the larger side has partitions: a mirror that
    spreads by key can then reach all of the target's."""
    source, target = Admin(run.source).topics(), on_target(run)
    return tuple(
        LoadTopic(name, mirrored, source[name], max(source[name], target.get(mirrored, 0)))
        for name, mirrored in run.topics.items()
    )


def on_target(run: Run) -> dict[str, int]:
    """The target's topics of this run that are there, with their partitions."""
    there = Admin(run.target).topics()
    return {name: there[name] for name in run.topics.values() if name in there}


def ends(cluster: ClusterAccess, topics: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Last stable offset of each partition of the topics, given with their partitions."""
    partitions = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
    offsets = Admin(cluster).offsets(partitions, Position.LAST_STABLE)
    return {
        name: tuple(offsets[TopicPartition(name, p)] for p in range(count))
        for name, count in topics.items()
    }
