"""The topics of a load: created where they are missing, and described."""

from dataclasses import dataclass, replace

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
    for name in run.first_topics.keys() - admin.topics().keys():
        admin.create_topic(name, run.test.spec.load.partitions)
    journal.wait_for_topics(admin, run.first_topics.keys())


def describe(run: Run) -> tuple[LoadTopic, ...]:
    """The topics that the load begins with. As many keys as the larger side has partitions, in the
    end: a mirror that spreads by key can then reach all of the target's."""
    source, target = Admin(run.source).topics(), on_target(run)
    more = sum(step.partitions or 0 for step in run.test.spec.chaos)
    return tuple(
        LoadTopic(name, mirrored, source[name], max(source[name] + more, target.get(mirrored, 0)))
        for name, mirrored in run.first_topics.items()
    )


def changed(
    run: Run, load_topics: tuple[LoadTopic, ...], changes: dict[str, int]
) -> tuple[LoadTopic, ...]:
    """All topics of the load, as steps of chaos have left them: ``changes`` has the partitions of
    those that were added, or have more than before."""
    known = {t.name for t in load_topics}
    return (
        *(replace(t, partitions=changes.get(t.name, t.partitions)) for t in load_topics),
        *(added(run, name, count) for name, count in changes.items() if name not in known),
    )


def added(run: Run, name: str, partitions: int) -> LoadTopic:
    """A topic that a step of chaos adds."""
    return LoadTopic(name, run.added_topics[name], partitions, keys=partitions)


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
