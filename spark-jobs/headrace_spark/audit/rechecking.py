"""Second reading of ranges that earlier audits compared, which finds later changes."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pyspark.sql import SparkSession

from headrace.api import AuditRecheck, TopicPartition
from headrace.kafka import Position
from headrace.mirror_test import (
    MAX_AUDITED_TOPICS,
    MAX_EXCLUDED,
    AuditedPast,
    ChangedRange,
    MirrorTestRun,
)
from headrace_spark.audit import records
from headrace_spark.audit.earlier_audits import PastBlock, chosen, united
from headrace_spark.audit.frontier import AuditedPartition, SourcePartition
from headrace_spark.audit.ranges import AuditedSide, Offsets, Ranges
from headrace_spark.patient_admin import PatientAdmin
from headrace_spark.session import SPARK_ERRORS

_ATTEMPTS = 3


def recheck(
    spark: SparkSession,
    run: MirrorTestRun,
    ranges: Ranges,
    known: Mapping[SourcePartition, AuditedPartition],
) -> AuditedPast:
    """Read ranges of earlier audits again, and compare their sums with the stored sums."""
    audit = run.test.spec.audit
    assert audit is not None
    full = audit.recheck is AuditRecheck.FULL
    blocks = sum(len(one.source_blocks) + len(one.target_blocks) for one in known.values())
    rechecked = checkable = 0
    changed: list[ChangedRange] = []
    for side in (ranges.source, ranges.target):
        found = _SideRecheck(spark, ranges, side, random.Random(run.name), full).carry_out()
        rechecked, checkable = rechecked + found.rechecked, checkable + found.checkable
        changed += found.changed
    return AuditedPast(
        since_ms=min((one.judged_ms for one in ranges.resumed.values()), default=None),
        blocks=blocks,
        rechecked=rechecked,
        unchecked=blocks - checkable,
        changed=tuple(islice(changed, MAX_EXCLUDED)),
        begun_again=tuple(sorted(ranges.begun_again)[:MAX_AUDITED_TOPICS]),
    )


@dataclass(frozen=True)
class _SideOutcome:
    rechecked: int
    checkable: int
    changed: Sequence[ChangedRange]


@dataclass
class _SideRecheck:
    """Second reading of one side."""

    spark: SparkSession
    ranges: Ranges
    side: AuditedSide
    dice: random.Random
    full: bool

    def carry_out(self) -> _SideOutcome:
        """Read the chosen blocks. Choose again if retention deletes some of them."""
        admin = PatientAdmin(self.side.cluster)
        oldest: Offsets = {}
        for attempt in range(_ATTEMPTS):
            before, oldest = oldest, admin.offsets(self.side.start, Position.EARLIEST)
            checkable = self._checkable(oldest)
            picked = {at: self._picked(at, blocks) for at, blocks in checkable.items()}
            try:
                changed = self._changed({at: united(blocks) for at, blocks in picked.items()})
            except SPARK_ERRORS:
                if attempt + 1 == _ATTEMPTS or oldest == before:
                    raise
            else:
                return _SideOutcome(_count(picked), _count(checkable), changed)
        raise AssertionError("each attempt returns or raises")

    def _checkable(self, oldest: Offsets) -> dict[TopicPartition, list[PastBlock]]:
        """Return the stored blocks that still exist completely and have comparable sums."""
        found: dict[TopicPartition, list[PastBlock]] = {}
        for at in self.side.start:
            one = self.ranges.resumed.get((topic := self.side.names[at.topic], at.partition))
            if one is None or not one.is_comparable(
                is_stamped=topic in self.ranges.stamped,
                changes=self.ranges.source.changes.of_records,
            ):
                continue
            all_blocks = one.source_blocks if self._is_source else one.target_blocks
            if blocks := [block for block in all_blocks if block.start >= oldest[at]]:
                found[at] = blocks
        return found

    @property
    def _is_source(self) -> bool:
        return self.side is self.ranges.source

    def _picked(self, at: TopicPartition, blocks: Sequence[PastBlock]) -> Sequence[PastBlock]:
        truncated = [block for block in blocks if block.end > self.side.end[at]]
        if truncated and not self.full:
            return truncated
        return chosen(blocks, self.dice, full=self.full)

    def _changed(self, expected: Mapping[TopicPartition, PastBlock]) -> list[ChangedRange]:
        spans = {
            at: (block.start, max(block.start, min(block.end, self.side.end[at])))
            for at, block in expected.items()
        }
        if not spans:
            return []
        read = records.read(
            self.spark,
            self.side.cluster,
            self.side.range(spans),
            self.ranges.stamped,
            self.side.changes,
        )
        sums = records.sums_of_partitions(read)
        found = {
            at: sums.get((self.side.names[at.topic], at.partition), (0, 0, 0)) for at in expected
        }
        return [
            ChangedRange(
                cluster=self.side.cluster.alias,
                topic=at.topic,
                partition=at.partition,
                first=block.start,
                last=block.end - 1,
                expected=block.records,
                found=found[at][0],
            )
            for at, block in sorted(expected.items())
            if found[at] != block.sums
        ]


def _count(blocks: Mapping[TopicPartition, Sequence[PastBlock]]) -> int:
    return sum(map(len, blocks.values()))
