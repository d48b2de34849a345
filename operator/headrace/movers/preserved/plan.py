"""Plan that makes the target's log equal: batches at their offsets, and gaps between them. Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.movers.batch.gate import Judged, Passage, Why
from headrace.movers.batch.joining import Run
from headrace.movers.batch.outgoing import Outgoing
from headrace.movers.preserved.runs import copies_before, filled_runs, runs


class Append(NamedTuple):
    """Records that follow each other without a gap."""

    outgoing: Outgoing
    rebuilt: bool

    @property
    def first(self) -> int:
        """Their offset on both sides."""
        return self.outgoing.first_offset

    @property
    def next(self) -> int:
        """The offset behind the last record."""
        return self.outgoing.first_offset + self.outgoing.records


class Hole(NamedTuple):
    """Offsets at which a consumer of committed records sees nothing on the source.

    They are markers, aborted records, and records that compaction removed.
    """

    first: int
    next: int
    """The first offset behind it."""

    @property
    def offsets(self) -> int:
        """Number of its offsets."""
        return self.next - self.first

    def pieces(self, most: int) -> "Iterator[Hole]":
        """Yield pieces of at most ``most`` offsets each."""
        for first in range(self.first, self.next, most):
            yield Hole(first, min(first + most, self.next))


Operation = Append | Hole
_UNSEEN = {Why.MARKER, Why.ABORTED}


def planned(
    found: Iterable[Judged | Run], *, start: int, release: Callable[[], None], copies: bool = False
) -> Iterator[Operation]:
    """Yield the operations for one partition of a response, which was fetched from ``start`` on.

    They have no gap or overlap, from ``start`` to the end of the last batch. Holes are as long as
    possible; records that compaction removed after the last batch are not known yet. ``release`` is
    called for each batch that is sent as it is. With ``copies``, offsets that compaction removed,
    up to the next record or marker, contain copies of the next record instead. Raise
    ``CorruptBatch`` and ``UnreadableBatch`` after what precedes such a batch.
    """
    written = read = unseen = start
    for one in found:
        waiting = one if isinstance(one, Run) else None
        try:
            if copies and one.passage is not Passage.SKIP and unseen > written:
                yield Hole(written, unseen)
                written = unseen
            if copies and one.why in _UNSEEN:
                unseen = one.batch.last_offset + 1
            for append in _appends(one, start, written, release, copies=copies):
                if append.first > written:
                    yield Hole(written, append.first)
                if waiting is not None and append.outgoing.batch is waiting.batch:
                    waiting = None
                yield append
                written = append.next
        finally:
            if waiting is not None:  # nobody takes it any more
                waiting.release()
        read = max(read, written, one.batch.last_offset + 1)
    if read > written:
        yield Hole(written, read)


def trailing(start: int, stable_end: int) -> Hole | None:
    """Return the gap if a response for one partition alone had nothing from ``start`` on.

    If the last stable offset is higher, compaction removed what was there. (Other partitions in the
    request may otherwise have used all the space in the response.)
    """
    return Hole(start, stable_end) if stable_end > start else None


def _appends(
    one: Judged | Run, start: int, written: int, release: Callable[[], None], *, copies: bool
) -> Iterator[Append]:
    batch = one.batch
    if one.passage is Passage.COPY:
        if copies and batch.base_offset > written:
            yield from map(_rebuilt, copies_before(batch, written))
        if isinstance(one, Run):
            yield _rebuilt(one.outgoing)
        else:
            yield Append(Outgoing(batch, batch.last_offset + 1, release), rebuilt=False)
    elif one.passage is Passage.REBUILD:
        made = filled_runs(batch, start, written) if copies else runs(batch, start)
        yield from map(_rebuilt, made)


def _rebuilt(outgoing: Outgoing) -> Append:
    return Append(outgoing, rebuilt=True)
