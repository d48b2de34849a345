"""Takes partitions over whose copies have their sources' offsets.

No marker closes a partition to earlier owners: it would take an offset. All append data with the
same producer id, in its sequence (see ``owner``); and who takes over raises the epochs of the
transactional ids by which earlier owners write markers.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Set
from functools import partial
from typing import Any, TypeVar

from headrace.api import ClusterAccess, TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable
from headrace.kafka.wire import ClusterClient, Reply, start
from headrace.logs import get_logger
from headrace.movers.batch.fencing import MarkerFencing
from headrace.movers.batch.marking import COORDINATOR_S, new_epoch, wait_for
from headrace.movers.lane import Before, Closed, Resumed
from headrace.movers.preserved.ends import End
from headrace.movers.preserved.openings import Openings
from headrace.movers.preserved.owner import Closer, data_producer, identified
from headrace.movers.preserved.starting import Pair, Starts
from headrace.replication import OwnerProducer
from headrace.replication.reconcile import Accounts, Resume, ResumeReason

log = get_logger(__name__)

T = TypeVar("T")
PAD_S = 10.0
"""Time for which a takeover fills partitions before it reports their progress."""
_TRIED = "raise the epochs of earlier owners on the target"


class PreservedFencing(MarkerFencing):
    """Fencing for copies with the source's offsets."""

    def __init__(
        self, source: ClusterAccess, target: ClusterAccess, openings: Openings, impossible: str
    ) -> None:
        super().__init__(source, target, impossible=impossible)
        self._openings = openings

    def identify(self, transactional_id: str) -> OwnerProducer:
        """Return an identity with a new epoch, or an open lane's identity.

        While a lane is open its epoch is kept: partitions that are added to it have no earlier
        writers with a higher one.
        """
        self._require_transactions()
        with self._openings.taking_over(transactional_id):
            if (current := self._openings.current(transactional_id)) is not None:
                return current
            with self._clients() as (loop, _, target):
                asked = identified(target, transactional_id)
                owner = wait_for(loop, asked, 2 * COORDINATOR_S, _TRIED)
            identity = owner.identities[0]
            writer = OwnerProducer(transactional_id, identity.producer_id, identity.epoch)
            self._openings.identified(writer, owner)
            return writer

    def data_writer(self, task: str) -> OwnerProducer:
        """Return the writer of data; its epoch is the one that the partition has."""
        name = f"headrace-{task}-data"
        with self._clients() as (loop, _, target):
            asked = data_producer(target, name)
            return OwnerProducer(name, wait_for(loop, asked, 2 * COORDINATOR_S, _TRIED), 0)

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Resumed | HeadraceError]:
        with (
            self._openings.taking_over(own.transactional_id),
            self._clients() as (_, source, target),
        ):
            owner = self._openings.owner(own)
            found: dict[TopicPartition, Resumed | HeadraceError] = {}
            refused = _raise_epochs(target, own, partitions.values())
            closers, not_closing = _closers(target, partitions.values())
            refused |= not_closing
            pairs = {}
            for at, before in partitions.items():
                names = _names(own, before) | _data_id(before)
                why = next((refused[one] for one in sorted(names) if one in refused), None)
                if why is None:
                    pairs[_pair(at, before)] = before
                else:
                    found[at] = why
            starts = Starts(source, target, owner, pad_s=PAD_S).of(list(pairs))
            for pair, end in starts.items():
                if isinstance(end, End):
                    closer = closers.get(pair.producer_id)
                    self._openings.found(own, pair.target, end, closer)
                    found[pair.source] = _resumed(pairs[pair], end)
                else:
                    found[pair.source] = end
                log.info(
                    "taken over",
                    partition=str(pair.source),
                    why_not=str(end) if isinstance(end, HeadraceError) else "",
                    end=end.offset if isinstance(end, End) else -1,
                    stored=pairs[pair].source_offset,
                )
            return found

    def close(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Closed | Retriable]:
        """Close the partitions to data with a marker, after which nothing is copied."""
        with self._clients() as (_, _, target):
            for error in _raise_epochs(target, own, partitions.values()).values():
                log.warning("an earlier owner may write markers", why=str(error))
        by_data = {
            at: before._replace(
                writers=frozenset({before.data_writer} if before.data_writer else ())
            )
            for at, before in partitions.items()
        }
        return super().close(own, by_data)


def _names(own: OwnerProducer, before: Before) -> frozenset[str]:
    names = {writer.transactional_id for writer in before.writers}
    return frozenset(names - {own.transactional_id})


def _data_id(before: Before) -> frozenset[str]:
    return frozenset({before.data_writer.transactional_id} if before.data_writer else ())


def _raise_epochs(
    target: ClusterClient, own: OwnerProducer, partitions: Collection[Before]
) -> dict[str, Fatal]:
    """Raise the epochs of all earlier owners; return the ones for which permission is missing."""
    names = {name for before in partitions for name in _names(own, before)}
    return _of_each(target, partial(identified, target), names)[1]


def _closers(
    target: ClusterClient, partitions: Collection[Before]
) -> tuple[dict[int, Closer], dict[str, Fatal]]:
    """Return the closers by producer id, and the ids for which permission is missing.

    An earlier owner's markers with these ids are then written, or never. An expired id returns with
    another producer id, which closes nothing.
    """
    names = {name for before in partitions for name in _data_id(before)}
    found, refused = _of_each(target, partial(new_epoch, target), names)
    closers = {one.producer_id: Closer(name, one) for name, one in found.items()}
    return closers, refused


def _of_each(
    target: ClusterClient, raised: Callable[[str], Coroutine[Reply[Any], None, T]], names: Set[str]
) -> tuple[dict[str, T], dict[str, Fatal]]:
    replies = {name: start(raised(name)) for name in sorted(names)}
    found: dict[str, T] = {}
    refused: dict[str, Fatal] = {}

    async def all_of_them() -> None:
        for name, reply in replies.items():
            try:
                found[name] = await reply
            except Fatal as error:
                refused[name] = error

    if replies:
        wait_for(target.loop, all_of_them(), 2 * COORDINATOR_S, _TRIED)
    return found, refused


def _pair(at: TopicPartition, before: Before) -> Pair:
    if before.data_writer is None:
        raise Fatal(f"internal error: {at} would be taken over without a writer of its data")
    return Pair(
        at,
        before.target,
        before.data_writer.producer_id,
        before.source_offset if before.compare else 0,
        before.source_compacts,
        before.target_compacts,
    )


def _resumed(before: Before, end: End) -> Resumed:
    """Return that the copy resumes at the target's end.

    The leader epoch of the source's record before it is not known.
    """
    copied, nothing = max(0, end.offset - before.source_offset), Accounts(0, 0, 0)
    resume = Resume(
        ResumeReason.AGREES, end.offset, end.offset, nothing, Accounts(copied, 0, 0), copied=copied
    )
    return Resumed(resume, -1)
