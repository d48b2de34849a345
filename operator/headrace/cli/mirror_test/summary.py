"""A mirror test's result in a few lines."""

from pathlib import Path

from headrace.mirror_test import Result


def summary(result: Result, page: Path) -> str:
    """A result in a few lines, the verdict first; ``page`` is where the rest stands."""
    lines = [f"{result.verdict}: {result.reasons[0]}"]
    lines += [f"  {reason}" for reason in result.reasons[1:]]
    if counts := result.counts:
        unequal = counts.unequal_offsets
        lines.append(
            f"  {counts.acknowledged - counts.missing - counts.source_lost:,} of "
            f"{counts.acknowledged:,} messages arrived; {counts.missing:,} missing, "
            f"{counts.duplicated:,} duplicated, {counts.reordered:,} reordered, "
            f"{counts.corrupted:,} corrupted, {counts.alien:,} alien"
            + (f", {unequal:,} at other offsets" if unequal is not None else "")
        )
    if latency := result.latency_ms:
        lines.append(
            f"  latency p50 {latency.p50:,} ms, p99 {latency.p99:,} ms, "
            f"p99.9 {latency.p999:,} ms, max {latency.max:,} ms"
        )
    for fault in result.faults:
        if fault.recovery_seconds is not None:
            what = f"{len(fault.units)} units of {fault.driver} ran again"
            if not fault.units:
                what = f"recovered{f' from the fault of {fault.driver}' if fault.driver else ''}"
            lines.append(
                f"  {fault.step.action} at {fault.percent:.0f} %: {what} after "
                f"{fault.recovery_seconds:.1f} s"
            )
    if result.rehearsal and result.rehearsal.seconds is not None:
        groups = result.rehearsal.groups
        lines.append(
            f"  fail-over in {result.rehearsal.seconds:.1f} s: {len(groups)} groups went on at the "
            f"target, {sum(one.reread for one in groups):,} messages delivered again, "
            f"{sum(one.skipped for one in groups):,} skipped"
        )
    lines += [f"  note: {warning}" for warning in result.warnings]
    lines.append(f"  report: {page}")
    return "\n".join(lines)
