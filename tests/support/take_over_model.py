"""The take-over of one partition at the target, request by request: the protocol as it is proved.

The model of two owners (``tests/property/fencing``) explores it in every order. The product
(``connect.fenced``, and the batch mover's ``MarkerFencing``) takes over many partitions at once. It
keeps the order of these stages, but also claims before it fences. Here, progress is read after a
marker of its own instead.

A marker of an empty transaction closes a partition to the earlier epochs of its producer id. It
closes the partition when it is *read there*, below the high watermark, and not when the coordinator
answers: brokers lose markers of partitions that have no leader at that moment. Progress is read
after its own partition's marker, the tail after the data partition's marker. Only then the claim is
written, and the partition opened.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, NamedTuple, Self

from headrace.replication.progress import Progress
from headrace.replication.reconcile import Marker, Resume, ResumeReason, StoredProgress


class Stage(StrEnum):
    """Steps of a take-over, in order."""

    IDENTIFY = "InitProducerId"
    ADD = "AddPartitionsToTxn"
    END = "EndTxn"
    PROGRESS = "read progress"
    TAIL = "reconcile the tail"
    CLAIM = "write the claim"
    OPEN = "open"
    REPLACED = "replaced"
    """Another owner has fenced this one: the end."""


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"


class Claim(NamedTuple):
    """The part of a progress record that a take-over reads, and writes."""

    epoch: int
    """The task's epoch. Every later owner has a higher one."""
    source_offset: int
    target_offset: int
    writer: int
    """The owner's producer id; -1: none that could be fenced."""
    unfenced: frozenset[int] = frozenset()
    """Producer ids of earlier owners that may append more. They stay here: a take-over that fences
    only the last owner would promise that nothing is doubled, while these are still alive. Their
    ids are left out once their processes have ended and their requests have timed out."""

    @classmethod
    def of(cls, progress: Progress) -> Self:
        """Read the claim of a progress record. It may name a writer that cannot be fenced."""
        writer = progress.writer.producer_id if progress.writer else -1
        unfenced = frozenset(progress.unfenced)
        return cls(progress.epoch, progress.source_offset, progress.target_offset, writer, unfenced)


@dataclass(frozen=True)
class TakeOver:
    """One partition that is being opened. Every answer makes the next state.

    Partitions of one task that are opened together share the first three requests, for one
    transaction. A partition without a leader is left out, and taken over when it has one again:
    opened partitions keep the epoch that they were opened with.
    """

    ORDER: ClassVar[tuple[Stage, ...]] = (
        Stage.IDENTIFY,
        Stage.ADD,
        Stage.END,
        Stage.PROGRESS,
        Stage.TAIL,
        Stage.CLAIM,
        Stage.OPEN,
    )

    epoch: int
    """The task's epoch, by the claim of the unit."""
    stage: Stage = Stage.IDENTIFY
    identities: tuple[Identity, ...] = ()
    """Identities of our own transactional id, then of the earlier owners' ids. InitProducerId is
    sent with the identity that is here, so that a later owner is not replaced in turn."""
    progress: Claim | None = None
    resume: Resume | None = None

    @property
    def own(self) -> Identity:
        """The identity that writes the partition."""
        return self.identities[0]

    @property
    def fences(self) -> dict[int, int]:
        """The epoch of the marker that is awaited, by producer id."""
        return dict(self.identities)

    @property
    def stored(self) -> StoredProgress:
        """The position to reconcile from, once progress is read."""
        assert self.progress is not None
        stored = self.progress
        writers = stored.unfenced | {stored.writer}
        return StoredProgress(stored.source_offset, stored.target_offset, writers)

    @property
    def claim(self) -> Claim:
        """The claim to write with our own identity, once the tail is reconciled."""
        assert self.resume is not None
        resume = self.resume
        return Claim(
            self.epoch,
            resume.source_offset,
            resume.target_offset,
            self.own.producer_id,
            resume.unfenced,
        )

    @property
    def nothing_doubled(self) -> bool:
        """Whether this take-over promises that no record is on the target twice."""
        return self.resume is not None and self.resume.outcome is ResumeReason.AGREES

    def identified(self, *identities: Identity) -> "TakeOver":
        """Accept InitProducerId's answer. A changed producer id fences nothing."""
        return self._next(identities=identities)

    def added(self) -> "TakeOver":
        """Accept AddPartitionsToTxn's answer for the partitions of data and progress."""
        return self._next()

    def ended(self) -> "TakeOver":
        """Accept EndTxn's answer: markers are in flight, or lost."""
        return self._next()

    def progress_read(self, progress: Claim, markers: Collection[Marker]) -> "TakeOver":
        """Accept the last progress and its partition's markers, all below the high watermark.

        Progress with a later epoch is a later owner's, also where the ids differ: its fence stops
        only producers with its own id.
        """
        if progress.epoch > self.epoch:
            return self.replaced()
        if not self._closed_by(markers):
            return self.fence_absent()
        return self._next(progress=progress)

    def reconciled(self, resume: Resume) -> "TakeOver":
        """Accept the comparison of the tail."""
        if resume.unfenced & self.fences.keys():
            return self.fence_absent()
        return self._next(resume=resume)

    def fence_absent(self) -> "TakeOver":
        """Fence again, because a marker is missing, unless another owner has fenced."""
        return replace(self, stage=Stage.IDENTIFY, progress=None, resume=None)

    def claimed(self) -> "TakeOver":
        """Accept the acknowledgement of the claim."""
        return self._next()

    def replaced(self) -> "TakeOver":
        """End: a broker has a later epoch (error 47)."""
        return replace(self, stage=Stage.REPLACED)

    def _closed_by(self, markers: Collection[Marker]) -> bool:
        return all(
            any(marker.producer_id == id_ and marker.producer_epoch >= epoch for marker in markers)
            for id_, epoch in self.identities
        )

    def _next(self, **learnt: object) -> "TakeOver":
        following = self.ORDER[self.ORDER.index(self.stage) + 1]
        return replace(self, stage=following, **learnt)  # type: ignore[arg-type]
