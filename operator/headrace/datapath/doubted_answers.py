"""Comparison of fetched answers in the fields that no checksum covers.

The checksum of a batch covers neither its base offset nor its leader epoch, and nothing covers the
list of aborted transactions. In a log without holes, each batch begins where the previous one ends,
so a wrong offset is detected. Batches for which this check is not possible are fetched again, and
accepted if two answers agree.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from headrace.kafka.wire import BatchVerdict, Scanned, first_rows
from headrace.kafka.wire.scan import (
    BASE,
    COLUMNS,
    LAST,
    LEADER_EPOCH,
    PRODUCER_ID,
    RUN_COLUMNS,
    RUN_FIRST,
    RUN_ROWS,
    RUN_VERDICT,
    VERDICT,
)

Aborted = Sequence[tuple[int, int]]
"""Producer id and first offset of each aborted transaction."""


class _Doubted(NamedTuple):
    """Batches that are not accepted yet, in the order of the log."""

    position: int
    """Offset from which they are fetched again."""
    bases: "array[int]"
    lasts: "array[int]"
    epochs: "array[int]"
    aborted: Aborted

    def first(self, count: int) -> tuple[object, ...]:
        """Return the compared fields of the first ``count`` batches."""
        last = self.lasts[count - 1]
        return (
            self.bases[:count],
            self.lasts[:count],
            self.epochs[:count],
            sorted(one for one in self.aborted if one[1] <= last),
        )

    def after(self, count: int, position: int) -> "_Doubted":
        """Return the batches after the first ``count`` ones."""
        return _Doubted(
            max(position, self.lasts[count - 1] + 1),
            self.bases[count:],
            self.lasts[count:],
            self.epochs[count:],
            (),
        )

    def explained_by_compaction(self, other: "_Doubted") -> bool:
        """Return whether compaction between the two answers explains the difference."""
        known = set(zip(other.bases, other.lasts, other.epochs, strict=True))
        end, batches = other.lasts[-1], zip(self.bases, self.lasts, self.epochs, strict=True)
        left = {batch for batch in batches if batch[0] <= end}
        return bool(left) and left <= known and self.aborted == other.aborted


class Agreement:
    """Comparison of the answers for one partition. Not thread-safe."""

    __slots__ = ("_before", "disagreement")

    def __init__(self) -> None:
        self._before: _Doubted | None = None
        """Batches of the previous answer that were not accepted."""
        self.disagreement = ""
        """Difference between the last two answers, as a sentence. Empty if there is none."""

    def believed(
        self,
        scanned: Scanned,
        position: int,
        leader_epoch: int,
        current_epoch: int,
        aborted: Aborted,
    ) -> Scanned:
        """Return the first batches of an answer, up to the first batch that is not accepted.

        The other batches must be fetched again. Usually all batches are accepted, and the result is
        ``scanned`` itself.

        Args:
            scanned: The answer.
            position: Offset from which the answer was requested.
            leader_epoch: Leader epoch of the record before ``position``; -1 if unknown.
            current_epoch: Epoch of the current leader, from another answer.
            aborted: Aborted transactions, as the answer lists them.
        """
        rows = scanned.rows
        if (
            scanned.run_count == 1  # the hot path: a log without holes
            and self._before is None
            and not aborted
            and rows[BASE] == position
            and rows[LEADER_EPOCH] == leader_epoch
            and scanned.runs[RUN_VERDICT] != BatchVerdict.OLD_FORMAT
        ):
            return scanned
        agreed = self._agreed(scanned, position, aborted)
        if agreed == scanned.row_count:
            return scanned
        odd: int | None = agreed
        if not aborted:
            odd = _first_odd(scanned, agreed, position, leader_epoch, current_epoch)
        if odd is None:
            return scanned
        # The wrong offset may be the one of the batch before the hole, so that batch is fetched
        # again.
        count = max(agreed, odd - 1)
        end = scanned.rows[(count - 1) * COLUMNS + LAST] + 1 if count else position
        self._before = _answer(
            scanned, count, max(end, position), _not_ended(scanned, count, aborted)
        )
        return first_rows(scanned, count)

    def _agreed(self, scanned: Scanned, position: int, aborted: Aborted) -> int:
        """Return how many batches agree with the previous answer, and forget these batches."""
        count, before = scanned.row_count, self._before
        if before is None or not count:
            return 0
        self._before = None
        if before.position != position:
            return 0
        answer, most = _answer(scanned, 0, position, aborted), len(before.bases)
        agreed = min(most, count)
        if before.first(agreed) != answer.first(agreed):
            if not answer.explained_by_compaction(before):
                self.disagreement = _disagreement(before, answer)
            return 0
        if agreed < most and not aborted and not before.aborted:
            # The rest of the previous answer is compared with the next answer.
            self._before = before.after(agreed, position)
        return agreed


def _answer(scanned: Scanned, first: int, position: int, aborted: Aborted) -> _Doubted:
    rows, at, end = scanned.rows, first * COLUMNS, scanned.row_count * COLUMNS
    return _Doubted(
        position,
        rows[at + BASE : end : COLUMNS],
        rows[at + LAST : end : COLUMNS],
        rows[at + LEADER_EPOCH : end : COLUMNS],
        tuple(aborted),
    )


def _not_ended(scanned: Scanned, count: int, aborted: Aborted) -> Aborted:
    """Return the transactions that the first ``count`` batches do not end.

    An answer from a later offset lists only these transactions.
    """
    ends: dict[int, int] = {}
    for at in range(0, count * COLUMNS, COLUMNS) if aborted else ():
        if scanned.rows[at + VERDICT] == BatchVerdict.MARKER:
            ends[scanned.rows[at + PRODUCER_ID]] = scanned.rows[at + BASE]
    return [one for one in aborted if ends.get(one[0], -1) < one[1]]


def _first_odd(
    scanned: Scanned, first: int, position: int, leader_epoch: int, current_epoch: int
) -> int | None:
    """Return the index of the first batch that does not continue the previous one, or None.

    The search begins with batch ``first``. Only the first batch of a run can be such a batch.
    """
    rows, runs = scanned.rows, scanned.runs
    for at in range(0, scanned.run_count * RUN_COLUMNS, RUN_COLUMNS):
        number = runs[at + RUN_FIRST]
        if number < first:
            continue
        row = number * COLUMNS
        if number:
            position = rows[row - COLUMNS + LAST] + 1
            leader_epoch = rows[row - COLUMNS + LEADER_EPOCH]
        if rows[row + BASE] != position or runs[at + RUN_VERDICT] == BatchVerdict.OLD_FORMAT:
            return number
        epoch = rows[row + LEADER_EPOCH]
        if epoch != leader_epoch and not (
            leader_epoch < epoch == current_epoch or (leader_epoch < 0 and runs[at + RUN_ROWS] > 1)
        ):
            return number
    return None


def _disagreement(before: _Doubted, now: _Doubted) -> str:
    pairs = zip(
        zip(before.bases, before.lasts, before.epochs, strict=True),
        zip(now.bases, now.lasts, now.epochs, strict=True),
        strict=False,
    )
    for one, other in pairs:
        if one != other:
            return (
                f"offsets {one[0]} to {one[1]} of leader epoch {one[2]} in one answer, and "
                f"{other[0]} to {other[1]} of leader epoch {other[2]} in the next one"
            )
    return "the lists of aborted transactions differ"
