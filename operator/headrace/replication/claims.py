"""Who may still append to a partition, by what the log of progress says. Pure."""

from collections.abc import Mapping

from headrace.replication.progress import Progress, Writer

Writers = Mapping[tuple[str, int], Writer]


def writers_after(writers: Writers, stored: Progress | None, progress: Progress) -> Writers:
    """The writers that may append, once ``progress`` is read behind all that led to ``writers``.

    ``stored`` is what counted before. A claim adds its own writer, and those that it has to fence:
    also one with an epoch too low to count, whose owner has yet to find that out. The same owner's
    record without any says that they are fenced.
    """
    following = dict(writers)
    if stored is not None and stored.owner == progress.owner and not progress.fencing:
        for one in stored.fencing:
            following.pop(one.id, None)
    own = (progress.writer,) if progress.writer is not None else ()
    return following | {one.id: one for one in (*progress.fencing, *own)}
