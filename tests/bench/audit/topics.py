"""The audited topics: equal records on both sides."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.mirror.measure import access
from bench.mirror.workloads import Workload, append, produce
from bench.spark_jobs import Job, judged, spark_figures, write_test
from bench.verify.clusters import copy, mirror_test

from headrace.api import MirrorTest, Verdict
from headrace.mirror_test import Result
from headrace.sandbox import ClusterPlan, Sandbox

_BATCH_BYTES = 16 << 10
_OVERHEAD_BYTES = 30
"""Bytes of each record on the disk beside its value: the key, and the record's own fields."""


def workload(value_bytes: int, records: int, codec: str) -> Workload:
    """Return records of one size. Half of each value is compressible."""
    return Workload(value_bytes, _BATCH_BYTES, codec, records)


@dataclass(frozen=True)
class AuditedCopy:
    """A topic and its copy on the other cluster."""

    sandbox: Sandbox
    folder: Path
    workload: Workload

    def append(self, records: int) -> None:
        """Append records to both sides."""
        self.append_to_source(records)
        self.copy()

    def copy(self) -> None:
        """Copy the records that the target lacks."""
        copy(self._test("Earliest"), [self.workload.name], self.folder)

    def append_to_source(self, records: int) -> None:
        """Append records that the target lacks."""
        append(access(self.sandbox, "east"), replace(self.workload, records=records))

    def counted(self) -> Job:
        """Read and count both sides."""
        write_test(self._test("Earliest"), self.folder)
        return spark_figures("bench.counting", self.folder, self.workload.name)

    def audited(
        self, name: str, start: str = "Earliest", expected: Verdict = Verdict.PASSED
    ) -> tuple[Job, Result]:
        """Audit both sides, from the first record or since the last audit."""
        folder = self.folder / name
        folder.mkdir()
        write_test(self._test(start), folder)
        return judged(name, folder, expected)

    def _test(self, start: str) -> MirrorTest:
        audit = {"topics": [self.workload.name], "startFrom": {"mode": start}}
        return mirror_test(self.sandbox, settleSeconds=1, audit=audit)


@contextmanager
def audited_copy(workload: Workload, folder: Path) -> Iterator[AuditedCopy]:
    """Yield a topic and its copy, in clusters of their own."""
    plans = [ClusterPlan("east"), ClusterPlan("west")]
    on_disk_bytes = workload.value_bytes // (1 if workload.codec == "none" else 2)
    disk_bytes = (1 << 30) + 2 * workload.records * (on_disk_bytes + _OVERHEAD_BYTES)
    with Sandbox.start("bench-audit", plans, disk_bytes=disk_bytes) as sandbox:
        produce(access(sandbox, "east"), workload)
        found = AuditedCopy(sandbox, folder, workload)
        found.copy()
        yield found
