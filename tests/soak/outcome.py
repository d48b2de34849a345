"""The verdict on a soak, and the sentences that give its reasons. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from soak.accounts import Account
from soak.evidence import clock
from soak.faults import Fault
from soak.samples import AtRest

LEAST_FAULTS_A_MINUTE = 2
MEMORY_GROWTH_MOST = 1.1
CLIENTS_MORE_MOST = 6
"""Drivers have some clients of their own for the types of units that they have, and which driver
has which is not the same before and after: one that is never freed comes again with each fault."""
JUDGED_FROM_MINUTES = 6
"""Minutes before which a driver still grows to its size."""
_EXAMPLES = 5


BEHIND = "the flow did not catch up"


class Verdict(StrEnum):
    """Verdict of a soak."""

    PASSED = "Passed"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"
    """The tested system or the test itself was not in the required state."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a soak."""

    seed: int
    minutes: float
    faults: Sequence[Fault]
    accounts: Sequence[Account]
    source_problems: Sequence[str]
    """Losses of the source, faults of its load, and brokers that did not start again."""
    mirror_problems: Sequence[str]
    """Other problems of the mirror: it did not catch up, or it ended."""
    memory: Sequence[float]
    """Memory of the veteran driver, in bytes, in the middle and in the last third.

    It is empty if the two cannot be compared.
    """
    before: AtRest
    after: AtRest | None
    """None if the flow never settled again."""

    @property
    def records(self) -> int:
        return sum(one.records for one in self.accounts)

    @property
    def missing(self) -> int:
        return sum(one.missing_count for one in self.accounts)

    @property
    def behind(self) -> int:
        return sum(one.behind for one in self.accounts)

    @property
    def reordered(self) -> int:
        return sum(len(one.reordered) for one in self.accounts)

    @property
    def repeats(self) -> int:
        return sum(len(one.repeats) for one in self.accounts)

    @property
    def unexplained(self) -> int:
        return sum(len(one.unexplained) for one in self.accounts)

    @property
    def verdict(self) -> Verdict:
        """Verdict. Failed precedes Inconclusive, because a loss is proved in any case."""
        if any(self._losses()):
            return Verdict.FAILED
        if any(self.doubts()):
            return Verdict.INCONCLUSIVE
        return Verdict.FAILED if any(self.failures()) else Verdict.PASSED

    def failures(self) -> Iterator[str]:
        """Reasons why it is not Passed: the losses, their places, and the faults near them."""
        yield from self._losses()
        yield from self.mirror_problems
        yield from self._growth()

    def doubts(self) -> Iterator[str]:
        """Why it proves nothing, though nothing was lost."""
        yield from self.source_problems
        if len(self.faults) < (least := int(self.minutes * LEAST_FAULTS_A_MINUTE)):
            yield f"only {len(self.faults)} faults, at least {least} were to be"
        if self.minutes >= JUDGED_FROM_MINUTES and not self.memory:
            yield "the driver had other units in each third: its memory is not judged"

    def _losses(self) -> Iterator[str]:
        for one in self.accounts:
            yield from self._missing_from(one)
            if one.reordered:
                shown = ", ".join(
                    f"{a.source_offset} at {a.target_offset} ({clock(a.at_s)})"
                    for a in one.reordered[:_EXAMPLES]
                )
                near = self._near(one.reordered[0].at_s, one.reordered[0].at_s)
                yield f"{one.name}: {len(one.reordered)} first arrivals out of order: {shown}{near}"
            if one.repeats:
                first = one.repeats[0].arrival
                offsets = [repeat.arrival.source_offset for repeat in one.repeats]
                yield (
                    f"{one.name}: {len(offsets)} records are there twice, source offsets "
                    f"{min(offsets)} to {max(offsets)}, the first at target offset "
                    f"{first.target_offset}, {clock(first.at_s)}{self._near(*[first.at_s] * 2)}"
                )
            if one.foreign:
                yield f"{one.name}: {one.foreign} records on the target that the source has not"

    def _missing_from(self, one: Account) -> Iterator[str]:
        for first, last in one.missing[:_EXAMPLES]:
            before_s, behind_s = one.missing_at[first]
            yield (
                f"{one.name}: source offsets {first} to {last} are missing on the target; its "
                f"neighbours arrived at {clock(before_s)} and {clock(behind_s)}"
                f"{self._near(before_s, behind_s)}"
            )
        if (more := len(one.missing) - _EXAMPLES) > 0:
            yield f"{one.name}: {more} more gaps, {one.missing_count} records in all"

    def _growth(self) -> Iterator[str]:
        if self.minutes >= JUDGED_FROM_MINUTES and self.memory:
            middle, last = self.memory
            if last > MEMORY_GROWTH_MOST * middle:
                yield f"a driver's memory grew to {last / middle:.2f} times the middle third's"
        if self.after and self.after.clients > self.before.clients + CLIENTS_MORE_MOST:
            yield (
                f"at rest all drivers have {self.after.clients} clients with "
                f"{self.after.threads} threads, and had {self.before.clients} with "
                f"{self.before.threads} before"
            )

    def _near(self, first_s: float, last_s: float) -> str:
        near = [fault for fault in self.faults if fault.is_near(first_s, last_s)]
        return f"; near in time: {', '.join(map(str, near))}" if near else "; no fault was near"

    def explained(self) -> Counter[str]:
        """Return the number of repeats by their explanation."""
        return Counter(
            f"{one.name}: {repeat.why or 'nothing explains them'}"
            for one in self.accounts
            for repeat in one.repeats
        )
