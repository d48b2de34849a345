"""Three flows whose connections are damaged by proxies, under load.

``make soak WIRE=1``, or ``cd tests && python -m soak.wire --minutes 10 --seed N``. One fault at a
time, on either side and in either direction, with a rest after it. At the end every record of the
source is looked up on the target, and no condition may stay.

Exit codes: 0 Passed, 1 Failed, 2 Inconclusive.
"""

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from soak.command import CODES, folder_of, parsed
from soak.faults import FaultJournal
from soak.hazards import Hazard
from soak.load import NumberedLoad
from soak.outcome import LEAST_FAULTS_A_MINUTE, Verdict
from soak.reading import ended_drivers, read_log
from soak.wire.damage import WireFaults
from soak.wire.differences import Difference, explained
from soak.wire.report import WireOutcome, account_for, records_on
from soak.wire.side_load import SideLoad
from soak.wire.stage import MODES, TOPICS, is_ready, wire_staged
from soak.wire.watch import DATA_LOSS, ConditionWatch, conditions_of

from headrace import logs

CONDITIONS_S = 60.0
"""Time after the last fault at which no condition may be true but Ready."""
CAUGHT_UP_S = 300.0
"""Longest time to catch up: a partition that an error code stopped is retried after a minute."""
_REST_S = (0.5, 2.5)
_JOIN_S = 60.0


def main() -> int:
    """Soak, print, and return the exit code."""
    options = parsed("soak.wire", __doc__ or "")
    logs.configure("ERROR")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    console = Console(width=None if sys.stdout.isatty() else 200, record=True)
    folder = folder_of(options, "wire-soaks")
    console.print(f"seed {options.seed}, {options.minutes:g} minutes; folder {folder}")
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as sockets:
            os.environ["XDG_RUNTIME_DIR"] = sockets
            outcome = _soak(options.minutes * 60, options.seed, options.rate, folder, console)
    except KeyboardInterrupt:
        console.print("ended before its time: Inconclusive")
        return CODES[Verdict.INCONCLUSIVE]
    finally:
        console.save_text(str(folder / "report.txt"), clear=False)
    outcome.show(console)
    console.print(f"Logs: {folder}", soft_wrap=True)
    console.save_text(str(folder / "report.txt"))
    return CODES[outcome.verdict]


def _soak(time_s: float, seed: int, rate: int, folder: Path, console: Console) -> WireOutcome:
    began = time.monotonic()

    def say(what: str) -> None:
        line = f"{time.monotonic() - began:6.0f} s  {what}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    journal = FaultJournal(say)
    with wire_staged(folder, say) as stage:
        watch = ConditionWatch([mode.flow for mode in MODES], say)
        faults = WireFaults(stage.sides, journal, say)
        load = NumberedLoad(stage.source, TOPICS, rate, folder / "load.log")
        side_load = SideLoad(stage.source, TOPICS, load.acknowledged)
        hazard = Hazard("wire", seed, faults.deck(), _REST_S, watch.ready)
        for thread in (load, side_load, watch, hazard):
            thread.start()
        try:
            threading.Event().wait(time_s)
        finally:
            hazard.stop()
            hazard.join(_JOIN_S)
        over_s = time.monotonic()
        load.stop()
        side_load.stop()
        say("the last fault is over; the load ends")
        while time.monotonic() < over_s + CONDITIONS_S:
            time.sleep(1)
        differences = watch.remaining()
        behind = _behind(watch)
        differences += [
            Difference(f"{flow}: not caught up after {CAUGHT_UP_S:.0f} s", 0.0, 0.0)
            for flow in behind
            if DATA_LOSS not in conditions_of(watch.statuses[flow])
        ]
        watch.stop()
        accounts, found, doubts = account_for(stage, load.acknowledged, watch.statuses, behind)
        differences += found
        problems = records_on(stage.foreign)
        problems += ended_drivers(read_log(stage.run.log), journal.faults, drivers=1)
        if (code := stage.run.stop(30)) != 0:
            problems.append(f"headrace run ended with code {code}")
        if len(journal.faults) < (least := int(time_s / 60 * LEAST_FAULTS_A_MINUTE)):
            doubts.append(f"only {len(journal.faults)} faults, at least {least} are expected")
    return WireOutcome(
        journal.faults,
        faults.damages,
        accounts,
        explained(differences, faults.damages),
        problems,
        [*doubts, *filter(None, [load.problem, side_load.problem, hazard.problem])],
    )


def _behind(watch: ConditionWatch) -> list[str]:
    """Wait until all is copied, and return the flows that do not catch up.

    A flow that has caught up once counts as caught up. Its lag can rise again for a moment, because
    heartbeats are still written.
    """
    deadline = time.monotonic() + CAUGHT_UP_S
    behind = list(watch.statuses)
    while True:
        behind = [
            flow
            for flow in behind
            if not is_ready(status := watch.statuses[flow])
            or (status.get("lag") or {}).get("records") != 0
        ]
        stopped = all(DATA_LOSS in conditions_of(watch.statuses[flow]) for flow in behind)
        if stopped or time.monotonic() > deadline:
            return behind
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
