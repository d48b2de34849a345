"""Progress that flows have stored on a real target."""

from collections.abc import Iterator

from support.records import read

from headrace.api import ClusterAccess, progress_topic
from headrace.replication import Progress, ProgressKey
from headrace.replication.ancestry import is_ancestry
from headrace.replication.first_start import is_first_start


def progress_records(
    target: ClusterAccess, topic: str = progress_topic("east")
) -> Iterator[tuple[ProgressKey, Progress | None]]:
    """Yield the records of partitions in a progress topic; None stands for a tombstone."""
    for records in read(target, topic).values():
        for record in records:
            key = record.key or b""
            if not (is_first_start(key) or is_ancestry(key)):
                value = record.value
                yield ProgressKey.decode(key), Progress.decode(value) if value else None
