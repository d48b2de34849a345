"""A flow between two clusters of three brokers, under load, with random faults.

``make soak``, or ``cd tests && python -m soak --minutes 10 --seed N``. Brokers, drivers and secrets
suffer at the same time, each from a thread of its own. At the end every record of the source is
looked up on the target: none may be missing, out of order, or doubled. The producer ids and
sequences in the target's log prove that no partition had two owners at a time.

Exit codes: 0 Passed, 1 Failed, 2 Inconclusive.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from soak.brokers import BrokerFaults
from soak.command import CODES, folder_of, parsed
from soak.drivers import DriverFaults, identity
from soak.faults import FaultJournal
from soak.hazards import Hazard
from soak.load import NumberedLoad
from soak.outcome import BEHIND, Outcome, Verdict
from soak.reading import close_books, ended_drivers, read_log
from soak.samples import AtRest, Sampler, at_rest, memory_of_thirds
from soak.stage import PROGRESS, TOPICS, Stage, staged
from soak.tables import show
from support.flows import spec
from support.records import count

from headrace import logs
from headrace.errors import HeadraceError

CAUGHT_UP_S = 120.0
"""Longest time without a copy: brokers have just been started, and tasks wait for a back-off."""
MENDED_S = 200.0
"""Time of three starts of a broker at their slowest."""
_CALM_LOOKS = 3
_PAUSE_S = (3.0, 12.0)

Say = Callable[[str], None]


def main() -> int:
    """Soak, print, and return the exit code."""
    options = parsed("soak", __doc__ or "")
    logs.configure("ERROR")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    console = Console(width=None if sys.stdout.isatty() else 160, record=True)
    folder = folder_of(options, "soaks")
    console.print(f"seed {options.seed}, {options.minutes:g} minutes; folder {folder}")
    try:
        # A socket's path has 107 bytes at most: do not use a folder that may be deep.
        with tempfile.TemporaryDirectory(prefix="soak-") as sockets:
            os.environ["XDG_RUNTIME_DIR"] = sockets
            os.environ["PYTHONFAULTHANDLER"] = "1"  # a driver that crashes says where
            with _progress(console, options.minutes) as progress:
                outcome = _soak(options, folder, progress)
    except KeyboardInterrupt:
        console.print("ended before its time: Inconclusive")
        return CODES[Verdict.INCONCLUSIVE]
    finally:
        console.save_text(str(folder / "report.txt"), clear=False)
    show(console, outcome)
    console.print(f"Logs: {folder}", soft_wrap=True)
    console.save_text(str(folder / "report.txt"))
    return CODES[outcome.verdict]


def _soak(options: argparse.Namespace, folder: Path, progress: Progress) -> Outcome:
    began = time.monotonic()

    def say(what: str) -> None:
        progress.print(f"{time.monotonic() - began:6.0f} s  {what}", markup=False, highlight=False)

    journal = FaultJournal(say)
    with staged(folder, say) as stage:
        veteran = min(stage.run.drivers(), key=psutil.Process.create_time)
        say(f"the memory of {identity(veteran)} is watched")
        load = NumberedLoad(stage.source, TOPICS, options.rate, folder / "load.log")
        sampler = Sampler(veteran, partial(_units_of, stage, identity(veteran).partition("/")[0]))
        before = at_rest(stage.run.drivers())
        hazards = _hazards(stage, journal, options.seed, veteran.pid)
        try:
            _run_for(options.minutes * 60, [load, sampler, *hazards], progress)
        finally:
            for hazard in hazards:
                hazard.stop()
            for hazard in hazards:
                hazard.join(MENDED_S)
        sampler.stop()
        sampler.save(folder / "memory.csv")
        say("all is put right; the load ends")
        load.stop()
        problems = [hazard.problem for hazard in hazards if hazard.problem]
        mirror, after = _come_to_rest(stage, say)
        mirror += ended_drivers(read_log(stage.run.log), journal.faults)
        say(f"{sum(load.acknowledged.values()):,} records are looked for")
        caught_up = not any(BEHIND in problem for problem in mirror)
        books = close_books(stage, load.acknowledged, journal.faults, caught_up=caught_up)
    return Outcome(
        options.seed,
        options.minutes,
        journal.faults,
        books.accounts,
        [*books.source_problems, *problems, *filter(None, [load.problem])],
        [*mirror, *books.disputes],
        memory_of_thirds(sampler.samples),
        before,
        after,
    )


def _units_of(stage: Stage, driver: str) -> str:
    units = stage.run.status().get("units", [])
    return " ".join(sorted(unit["type"] for unit in units if unit.get("driverName") == driver))


def _hazards(stage: Stage, journal: FaultJournal, seed: int, veteran: int) -> list[Hazard]:
    source, target = (
        BrokerFaults(stage.source, journal),
        BrokerFaults(stage.target, journal, PROGRESS),
    )
    drivers = DriverFaults(stage, journal, veteran)
    return [
        Hazard("source", seed, source.deck(), _PAUSE_S, source.whole),
        Hazard("target", seed, target.deck(), _PAUSE_S, target.whole),
        Hazard("drivers", seed, drivers.deck(), _PAUSE_S, drivers.recovered),
    ]


def _run_for(
    seconds: float, threads: Sequence[NumberedLoad | Sampler | Hazard], progress: Progress
) -> None:
    for thread in threads:
        thread.start()
    began, over = time.monotonic(), threading.Event()
    task = progress.add_task("soaking", total=seconds)
    while (passed := time.monotonic() - began) < seconds:
        progress.update(task, completed=passed)
        over.wait(0.5)
    progress.update(task, completed=seconds)


def _come_to_rest(stage: Stage, say: Say) -> tuple[list[str], AtRest | None]:
    """Wait until all records are copied, end the flow, and return the problems."""
    problems: list[str] = []
    after = None
    began = moved_at = time.monotonic()
    calm, copied = 0, 0
    while calm < _CALM_LOOKS and time.monotonic() < moved_at + CAUGHT_UP_S:
        time.sleep(1)
        calm = calm + 1 if _caught_up(stage) else 0
        if (now := _copied(stage)) > copied:
            moved_at, copied = time.monotonic(), now
    if calm < _CALM_LOOKS:
        units = [
            f"{unit['name']} {unit.get('phase')}, lag {unit.get('lag')}"
            for unit in stage.run.units()
        ]
        problems.append(
            f"{BEHIND}, and copied nothing for {CAUGHT_UP_S:.0f} s: {'; '.join(units)}; Ready: "
            f"{stage.run.condition('Ready')}"
        )
    else:
        say(f"caught up after {time.monotonic() - began:.0f} s")
        after = at_rest(stage.run.drivers())
    if (code := stage.run.stop(30)) != 0:
        problems.append(f"headrace run ended with code {code}")
    return problems, after


def _caught_up(stage: Stage) -> bool:
    units = stage.run.units()
    return stage.run.ready() and all(
        unit.get("phase") == "Running" and unit.get("lag", {}).get("records", 0) == 0
        for unit in units
    )


def _copied(stage: Stage) -> int:
    try:
        return sum(count(spec(stage.target), f"{stage.source.name}.{topic}") for topic in TOPICS)
    except HeadraceError:
        return 0


def _progress(console: Console, minutes: float) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    shown = TextColumn(f"of {minutes:g} minutes")
    return Progress(*columns, shown, console=console, disable=not console.is_terminal)


if __name__ == "__main__":
    sys.exit(main())
