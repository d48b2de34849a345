"""Which offsets the comparison reads, and whether the clusters still have them.

What a log has lost is reported here, with cluster and topic, before Spark fails to read it.
"""

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import GaveUp
from headrace.kafka import Admin, Position
from headrace.mirror_test import LoadManifest, Run
from headrace_spark import topics
from headrace_spark.records import Range

_SHOWN = 3


def of_source(run: Run, manifest: LoadManifest) -> Range:
    """What the load wrote; raises ``GaveUp`` when a part of it is gone."""
    planned = Range(
        source_names={t.name: t.name for t in manifest.topics},
        start={t.name: t.start_offsets for t in manifest.topics},
        end={t.name: t.end_offsets for t in manifest.topics},
    )
    _check_partitions(run.source, {t.name: t.partitions for t in manifest.topics})
    _check_offsets(run.source, planned)
    return planned


def of_target(run: Run, manifest: LoadManifest) -> Range:
    """From where the target was before the load (a partition that was not there yet: from its
    beginning) to where it is now; of a topic that is not there, nothing. Raises ``GaveUp`` when a
    part of it is gone."""
    known = {run.topics[t.name]: t.target_start_offsets for t in manifest.topics}
    _check_partitions(run.target, {name: len(starts) for name, starts in known.items()})
    there = topics.on_target(run)
    planned = Range(
        source_names={target: source for source, target in run.topics.items() if target in there},
        start={
            name: known[name] + (0,) * (count - len(known[name])) for name, count in there.items()
        },
        end=topics.ends(run.target, there),
    )
    _check_offsets(run.target, planned)
    return planned


def _check_partitions(cluster: ClusterAccess, before: dict[str, int]) -> None:
    """Raise ``GaveUp`` for a topic that has fewer partitions than it had."""
    there = Admin(cluster).topics()
    for name, count in before.items():
        now = there.get(name, 0)
        if now < count:
            how = f"has {now} partitions and had {count}: it was made again" if now else "is gone"
            raise GaveUp(f"{cluster.alias} has lost records of this test: topic {name} {how}")


def _check_offsets(cluster: ClusterAccess, planned: Range) -> None:
    """Raise ``GaveUp`` where a log does not have its range any more."""
    ranges = {
        TopicPartition(name, number): (start, planned.end[name][number])
        for name, starts in planned.start.items()
        for number, start in enumerate(starts)
    }
    admin = Admin(cluster)
    firsts = admin.offsets(ranges, Position.EARLIEST)
    ends = admin.offsets(ranges, Position.LATEST)
    lost = []
    for at, (start, end) in ranges.items():
        if ends[at] < (needed := max(start, end)):
            lost.append(
                f"{at} ends at offset {ends[at]} and had {needed}: the log was cut, or the topic "
                "was made again"
            )
        elif firsts[at] > start and end > start:
            lost.append(
                f"{at} begins at offset {firsts[at]}, and the test's records at {start}: retention "
                "or somebody deleted them"
            )
    if lost:
        more = f" and {len(lost) - _SHOWN} more partitions" if len(lost) > _SHOWN else ""
        raise GaveUp(
            f"{cluster.alias} has lost records of this test: {'; '.join(lost[:_SHOWN])}{more}"
        )
