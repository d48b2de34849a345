"""The history of each partition as text: its owners, its stored progress, its arrivals."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from soak.accounts import Arrival, Stored
from soak.faults import Fault


def write_evidence(
    folder: Path,
    name: str,
    target: Sequence[Arrival],
    progress: Sequence[Stored],
    faults: Sequence[Fault],
) -> None:
    """Write ``<name>.txt``: one line an event, in the order of time."""
    events = sorted(chain(_of_faults(faults), _of_progress(progress), _of_arrivals(target)))
    lines = [f"{clock(at_s)}  {what}\n" for at_s, what in events]
    (folder / f"{name}.txt").write_text("".join(lines))


def clock(at_s: float) -> str:
    """Return the time in UTC, as the logs have it."""
    return time.strftime("%H:%M:%S", time.gmtime(at_s)) + f".{int(at_s * 1000) % 1000:03}"


def _of_faults(faults: Sequence[Fault]) -> Iterator[tuple[float, str]]:
    for fault in faults:
        yield fault.began_s, f"{fault} begins"
        if fault.ended_s != float("inf"):
            yield fault.ended_s, f"{fault} is over"


def _of_progress(progress: Sequence[Stored]) -> Iterator[tuple[float, str]]:
    for one in progress:
        owner = f"{one.task} on {one.driver}, epoch {one.epoch}"
        yield one.at_s, f"stored: {one.source_offset} by {owner}"


def _of_arrivals(target: Sequence[Arrival]) -> Iterator[tuple[float, str]]:
    """Yield runs of source offsets without a gap that the target appended at one time."""
    run: list[Arrival] = []
    for arrival in target:
        last = run[-1] if run else None
        if last and (arrival.source_offset, arrival.at_s) != (last.source_offset + 1, last.at_s):
            yield _run(run)
            run = []
        run.append(arrival)
    if run:
        yield _run(run)


def _run(run: Sequence[Arrival]) -> tuple[float, str]:
    first, last = run[0], run[-1]
    where = f"at target offset {first.target_offset}"
    return first.at_s, f"arrived: {first.source_offset} to {last.source_offset} {where}"
