"""Which records of a log were committed, by the markers behind them. Pure.

For a reader of uncommitted records: one of committed records sees nothing behind the first record
of an open transaction, whoever's it is (the last stable offset), a frozen producer's too.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Written(NamedTuple):
    """A batch that is part of a transaction."""

    offsets: range
    producer_id: int


class Ended(NamedTuple):
    """A marker: the end of its producer's transaction in this partition."""

    offset: int
    producer_id: int
    committed: bool


class Decided(NamedTuple):
    """A batch of a transaction that has ended."""

    offsets: range
    committed: bool


def decided(entries: Iterable[Written | Ended]) -> Iterator[Decided]:
    """Those batches whose transaction has ended within ``entries``, which are of one partition and
    in the order of its log without a gap.

    A producer has one transaction at a time, and the first marker of its id, of whichever epoch,
    ends it: that of a fence has a later one. A batch without a marker behind it is open, or its
    marker was lost: it is left out.
    """
    pending: dict[int, list[range]] = {}
    for entry in entries:
        if isinstance(entry, Written):
            pending.setdefault(entry.producer_id, []).append(entry.offsets)
        else:
            for offsets in pending.pop(entry.producer_id, ()):
                yield Decided(offsets, entry.committed)
