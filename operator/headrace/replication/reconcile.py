"""Compares stored progress with the target's records.

If an owner is killed, it may have appended records that are not in its stored progress: the *tail*.
The new owner compares the tail with the source, record by record. If both are equal, nothing is
copied twice. If they differ, the copy resumes at the stored offset and reports the reason.

Every offset of the compared parts is counted. An offset contains a record, or nothing for a
``read_committed`` reader (a transaction marker or an aborted record), or is a gap from compaction.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.replication.progress import ContiguousRange, CopiedRuns

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record of one partition, of the source or of the target."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    producer_id: int = -1
    """Producer id of the record's batch. It is used only for records of the target."""

    @property
    def last(self) -> int:
        """Last offset of the entry."""
        return self.offset


class Dropped(NamedTuple):
    """Offsets of aborted records, and of markers of producers that are not fenced."""

    offset: int
    last: int


class Marker(NamedTuple):
    """Transaction marker on the target. Older epochs of its producer cannot append after it."""

    offset: int
    producer_id: int
    producer_epoch: int

    @property
    def last(self) -> int:
        """Last offset of the entry."""
        return self.offset


class StoredProgress(NamedTuple):
    """Offsets and writers of a partition's stored progress."""

    source_offset: int
    """Next source offset to copy."""
    target_offset: int
    """Next target offset. All target records below it are in the progress."""
    writers: frozenset[int]
    """Producer ids of the owners that may have appended records since."""


class ResumeReason(StrEnum):
    """Reason for the offset at which a copy resumes.

    With ``AGREES``, no record is copied twice. With any other reason, records may be.
    """

    AGREES = "Agrees"
    UNFENCED = "Unfenced"
    """The fence of a writer was not found in the log, so the writer may append more records."""
    FILTER_CHANGED = "FilterChanged"
    """The tail was copied with another record filter."""
    FOREIGN_RECORD = "ForeignRecord"
    """A record of the tail is from none of the writers."""
    TARGET_HOLES = "TargetHoles"
    """The target no longer has its whole tail."""
    SOURCE_HOLES = "SourceHoles"
    """The source has lost a record of the tail.

    The source's offsets have a gap, and the record after the gap differs from the tail's record.
    """
    SOURCE_ENDS = "SourceEnds"
    """The tail has more records than the source."""
    DISAGREES = "Disagrees"
    """A record of the tail differs from the source's record."""


class Accounts(NamedTuple):
    """Number of offsets of each kind that were read on one side."""

    records: int
    dropped: int
    """Markers and aborted records."""
    holes: int


@dataclass(frozen=True)
class Resume:
    """Offsets at which the copy of a partition resumes, with the reason."""

    outcome: ResumeReason
    source_offset: int
    """Next source offset to copy."""
    target_offset: int
    """First target offset after all fences, or the stored offset if a fence is missing."""
    source: Accounts
    """Numbers of source offsets from the stored source offset to the last compared record, by
    kind."""
    target: Accounts
    """Numbers of target offsets from the stored target offset to the last fence, by kind."""
    copied: int = 0
    """Number of records of the tail that are not copied again."""
    runs: tuple[ContiguousRange, ...] = ()
    """Source and target offsets of the ``copied`` records."""
    at: int = -1
    """Target offset of the first difference, or -1 if there is none."""
    unfenced: frozenset[int] = frozenset()
    """Producer ids that may append more records."""

    @property
    def doubled_at_most(self) -> int:
        """Maximum number of duplicates on the target, except duplicates of unfenced writers."""
        return self.target.records - self.copied


def reconcile(
    stored: StoredProgress,
    target: Iterable[Record | Dropped | Marker],
    source: Iterable[Record | Dropped],
    fences: Mapping[int, int],
    *,
    compare_timestamps: bool = True,
    same_filter: bool = True,
) -> Resume:
    """Return where a copy resumes, after comparing the tail with the source.

    Args:
        stored: Offsets and writers of the stored progress.
        target: Contents of the target's log from ``stored.target_offset`` on, *below the high
            watermark*, because an election can lose later entries, including a fence. They are read
            up to the last fence.
        source: Contents of the source's log from ``stored.source_offset`` on, with committed
            records only. They are read in step with the tail and no further, so both may be
            streams.
        fences: Epoch of the new owner's marker for each producer id. A later epoch also counts,
            because the broker rejects the older ones.
        compare_timestamps: False if the target's timestamps are the times of its appends.
        same_filter: True if the record filter has not changed since the stored progress.

    Raises:
        ValueError: The offsets do not ascend.
    """
    tail, original = _Reader(target, stored.target_offset), _Reader(source, stored.source_offset)
    missing = dict(fences)
    outcome = ResumeReason.AGREES if same_filter else ResumeReason.FILTER_CHANGED
    copied, runs, at = 0, CopiedRuns(), -1
    resumes_at = stored.source_offset
    for entry in tail if missing else ():
        if isinstance(entry, Marker):
            if entry.producer_epoch >= missing.get(entry.producer_id, entry.producer_epoch + 1):
                del missing[entry.producer_id]
            if not missing:
                break
        elif isinstance(entry, Record) and outcome is ResumeReason.AGREES:
            if tail.holes:
                outcome = ResumeReason.TARGET_HOLES
            elif entry.producer_id not in stored.writers:
                outcome = ResumeReason.FOREIGN_RECORD
            else:
                outcome = _compare(entry, original, compare_timestamps)
            if outcome is ResumeReason.AGREES:
                copied, resumes_at = copied + 1, original.next
                runs.add(original.next - 1, entry.offset)
            else:
                at = entry.offset
    if outcome is ResumeReason.AGREES and tail.holes:
        outcome = ResumeReason.TARGET_HOLES  # before a fence, after all records
    unfenced = stored.writers.difference(fences).union(missing)
    if unfenced or not fences:
        outcome = ResumeReason.UNFENCED
    agrees = outcome is ResumeReason.AGREES
    return Resume(
        outcome=outcome,
        source_offset=resumes_at if agrees else stored.source_offset,
        target_offset=tail.next if outcome is not ResumeReason.UNFENCED else stored.target_offset,
        source=original.accounts,
        target=tail.accounts,
        copied=copied if agrees else 0,
        runs=tuple(runs.take()) if agrees else (),
        at=at,
        unfenced=unfenced,
    )


def _compare(copy: Record, original: "_Reader", compare_timestamps: bool) -> ResumeReason:
    """Return whether a record of the tail agrees with the next record of the source, or why not."""
    holes = original.holes
    wanted = next((entry for entry in original if isinstance(entry, Record)), None)
    if wanted is None:
        return ResumeReason.SOURCE_ENDS
    same = (copy.key, copy.value, copy.headers) == (wanted.key, wanted.value, wanted.headers)
    if same and (copy.timestamp_ms == wanted.timestamp_ms or not compare_timestamps):
        return ResumeReason.AGREES
    return ResumeReason.SOURCE_HOLES if original.holes > holes else ResumeReason.DISAGREES


class _Reader:
    """Reads the entries of one side, and counts every offset below ``next``."""

    def __init__(self, entries: Iterable[Record | Dropped | Marker], offset: int) -> None:
        self._entries = iter(entries)
        self.next = offset
        self.holes = self._records = self._dropped = 0

    def __iter__(self) -> Iterator[Record | Dropped | Marker]:
        for entry in self._entries:
            if not self.next <= entry.offset <= entry.last:
                raise ValueError(f"{entry} follows offset {self.next - 1}")
            self.holes += entry.offset - self.next
            if isinstance(entry, Record):
                self._records += 1
            else:
                self._dropped += entry.last + 1 - entry.offset
            self.next = entry.last + 1
            yield entry

    @property
    def accounts(self) -> Accounts:
        return Accounts(self._records, self._dropped, self.holes)


# Finds the committed records of a log by the markers after them, for a reader of uncommitted
# records. No I/O. A reader of committed records receives nothing after the first record of any open
# transaction (the last stable offset), including a frozen producer's.


class TransactionalBatch(NamedTuple):
    """A batch that is part of a transaction."""

    offsets: range
    producer_id: int


class Ended(NamedTuple):
    """A transaction marker: the end of its producer's transaction in this partition."""

    offset: int
    producer_id: int
    committed: bool


class Decided(NamedTuple):
    """A batch of a transaction that has ended."""

    offsets: range
    committed: bool


def decided(entries: Iterable[TransactionalBatch | Ended]) -> Iterator[Decided]:
    """Yield the batches whose transaction has ended within ``entries``.

    The entries belong to one partition and are in the order of its log, without a gap. A producer
    has one transaction at a time. The first marker of its id ends the transaction, whatever its
    epoch: a fence's marker has a later epoch. A batch without a later marker is not yielded,
    because its transaction is open, or its marker was lost.
    """
    pending: dict[int, list[range]] = {}
    for entry in entries:
        if isinstance(entry, TransactionalBatch):
            pending.setdefault(entry.producer_id, []).append(entry.offsets)
        else:
            for offsets in pending.pop(entry.producer_id, ()):
                yield Decided(offsets, entry.committed)
