"""From where each partition is written, once what the target holds is found to be as on the source.

It waits: for a thread of its own, as a fence does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import (
    EARLIEST,
    LATEST,
    ClusterClient,
    delete_records,
    list_offsets,
)
from headrace.movers.batch.marking import wait_for
from headrace.movers.batch.tail import Tail
from headrace.movers.preserved.ends import End, ends_of
from headrace.movers.preserved.owner import TaskProducers
from headrace.movers.preserved.padding import pad
from headrace.movers.preserved.shape import first_difference
from headrace.movers.preserved.wrong_offset import REBUILD, WrongOffset
from headrace.replication.reconcile import Record

_PATIENCE_S = 10.0
_ENDS_S = 60.0
_PAD_S = 600.0
"""Time for one transaction, and to delete what it wrote."""
_TRIED = "find where the copies of the target end"


@dataclass(frozen=True)
class Pair:
    """A partition of the source, and its copy."""

    source: TopicPartition
    target: TopicPartition
    producer_id: int
    """Producer id of the copy's data, which never changes."""
    compare_from: int = 0
    """All below was found equal, or is progress of this flow."""
    source_compacts: bool = False
    target_compacts: bool = False


@dataclass(frozen=True)
class _Bounds:
    """Offsets of one pair."""

    source_start: int
    source_end: int
    """The last stable offset."""
    target_start: int


class Starts:
    """Starts of one owner's partitions.

    Both clusters have the same loop, which runs while it waits.
    """

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        owner: TaskProducers,
        *,
        pad_s: float = inf,
    ) -> None:
        """Create the object.

        Args:
            source: Client of the source.
            target: Client of the target.
            owner: Producers of the owner.
            pad_s: Total time for filling partitions up to the source's first offset. Afterwards
                ``Filling`` reports the progress of each. One transaction of each is always
                completed.
        """
        self._source, self._target, self._owner = source, target, owner
        self._pad_until_s = target.loop.now_s() + pad_s

    def of(self, pairs: Sequence[Pair]) -> dict[Pair, End | HeadraceError]:
        """Return the end of each pair, or an error.

        ``Fatal``, including ``WrongOffset``, requires a user's action. ``Retriable`` is retried.
        """
        ends = self._ends({pair.target: pair.producer_id for pair in pairs})
        bounds = self._bounds(pairs)
        found: dict[Pair, End | HeadraceError] = {}
        for pair in pairs:
            end, known = ends[pair.target], bounds[pair]
            if isinstance(end, HeadraceError):
                found[pair] = end
            elif isinstance(known, HeadraceError):
                found[pair] = known
            else:
                try:
                    found[pair] = self._start(pair, end, known)
                except HeadraceError as error:
                    found[pair] = error
        return found | self._without_heads(
            {
                pair: known.source_start
                for pair, known in bounds.items()
                if isinstance(known, _Bounds)
                and isinstance(found[pair], End)
                and known.target_start < known.source_start
                and not pair.target_compacts
            }
        )

    def _without_heads(self, starts: Mapping[Pair, int]) -> dict[Pair, HeadraceError]:
        """Delete what the sources have deleted, in one request for all; why that failed."""
        if not starts:
            return {}
        deleted = delete_records(self._target, {pair.target: at for pair, at in starts.items()})
        failed = wait_for(self._target.loop, deleted, _ENDS_S, _TRIED).failed
        return {pair: failed[pair.target] for pair in starts if pair.target in failed}

    def _ends(
        self, producers: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, End | HeadraceError]:
        asked = ends_of(self._target, producers)
        return wait_for(self._target.loop, asked, _ENDS_S, _TRIED)

    def _start(self, pair: Pair, end: End, bounds: _Bounds) -> End:
        at = pair.target
        if end.offset > bounds.source_end:
            raise WrongOffset(
                at,
                bounds.source_end,
                f"{at} on {self._target.name} ends at offset {end.offset}, and what is committed "
                f"of {pair.source} on {self._source.name} at {bounds.source_end}: the source was "
                "truncated or made again, a fail-over has ended the copy, or another client "
                f"writes to the target; {REBUILD}",
            )
        if end.offset < bounds.source_start:
            return self._padded(pair, end, bounds)
        self._compare(pair, bounds, end.offset)
        return end

    def _bounds(self, pairs: Sequence[Pair]) -> dict[Pair, _Bounds | HeadraceError]:
        """After the ends: the source's was no lower before."""
        sources, targets = [one.source for one in pairs], [one.target for one in pairs]
        starts = _offsets(self._source, sources, EARLIEST)
        stable = _offsets(self._source, sources, LATEST)
        copies = _offsets(self._target, targets, EARLIEST)
        found: dict[Pair, _Bounds | HeadraceError] = {}
        for pair in pairs:
            start, end, copy = starts[pair.source], stable[pair.source], copies[pair.target]
            failed = [one for one in (start, end, copy) if isinstance(one, HeadraceError)]
            if failed:
                found[pair] = failed[0]
            elif isinstance(start, int) and isinstance(end, int) and isinstance(copy, int):
                found[pair] = _Bounds(start, end, copy)
        return found

    def _padded(self, pair: Pair, end: End, bounds: _Bounds) -> End:
        """Fill the partition; it contains only an earlier owner's fillers so far."""
        target, at, first = self._target, pair.target, bounds.source_start
        if end.offset > bounds.target_start:
            tail = Tail(target, at, bounds.target_start, patience_s=_PATIENCE_S)
            for entry in tail.of_source():
                if isinstance(entry, Record) and entry.offset < end.offset:
                    raise Fatal(
                        f"{at} on {target.name} holds records and ends at offset {end.offset}, and "
                        f"{pair.source} begins at {first}: what lies between was deleted before it "
                        f"was copied; {REBUILD}"
                    )
                if entry.last >= end.offset - 1:
                    break
        filled = pad(target, self._owner, at, end, first, until_s=self._pad_until_s)
        wait_for(target.loop, filled, _PAD_S, f"fill {at}")
        padded = self._ends({at: pair.producer_id})[at]
        if isinstance(padded, HeadraceError):
            raise padded
        if padded.offset != first:
            raise Retriable(f"{at} on {target.name} ends at {padded.offset}, not yet at {first}")
        return padded

    def _compare(self, pair: Pair, bounds: _Bounds, end: int) -> None:
        first = max(bounds.source_start, bounds.target_start, pair.compare_from)
        if first >= end:
            return
        tail = Tail(self._target, pair.target, first, patience_s=_PATIENCE_S)
        original = Tail(self._source, pair.source, first, patience_s=_PATIENCE_S)
        difference = first_difference(
            original.of_source(),
            tail.of_source(),
            range(first, end),
            source_compacts=pair.source_compacts,
            target_compacts=pair.target_compacts,
        )
        if difference is not None:
            raise WrongOffset(
                pair.target,
                difference.offset,
                f"{pair.target} on {self._target.name} is not as {pair.source} on "
                f"{self._source.name} from offset {difference.offset} on: {difference.what}; "
                f"{REBUILD}",
            )


def _offsets(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], time: int
) -> dict[TopicPartition, int | HeadraceError]:
    """Return the offsets of committed records."""
    listed = list_offsets(cluster, partitions, time, read_committed=True, timeout_s=_PATIENCE_S)
    answers = wait_for(cluster.loop, listed, _ENDS_S, _TRIED)
    found: dict[TopicPartition, int | HeadraceError] = dict(answers.failed)
    return found | {at: one.offset for at, one in answers.found.items()}
