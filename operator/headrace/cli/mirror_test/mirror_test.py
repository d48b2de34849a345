"""The stages of a mirror test on this machine: probe, load with chaos, comparison."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pydantic import ValidationError

from headrace.api import ChaosStep, Rehearsal
from headrace.cli.mirror_test.local_stages import LocalStages, OnMetrics
from headrace.cli.mirror_test.verify_view import View
from headrace.errors import GaveUp
from headrace.mirror_test import Result, Run, Stage, documents
from headrace.mirror_test.sequence import Activity, advance

_DOCUMENTS = (
    *(documents.TEST, documents.FAULTS, documents.MANIFEST),
    *(documents.MEASURED, documents.REHEARSAL, documents.REPORT),
    *(documents.PAGE, documents.END_LOAD, documents.BEGIN),
    *("probe.log", "produce.log", "verify.log"),
)
_TITLES = {
    Activity.STARTING_PROBE: "Starting the probe",
    Activity.SENDING: "Starting the load",
    Activity.AWAITING_ARRIVALS: "Waiting for the last message on the target",
    Activity.COMPARING: "Comparing the clusters",
}


def run_test(
    run: Run,
    steps: Sequence[ChaosStep],
    folder: Path,
    timeout_s: float,
    view: View,
    *,
    rehearsal: Rehearsal | None = None,
    on_metrics: OnMetrics | None = None,
) -> Result:
    """Carry out a resolved test and return the result in ``report.json``.

    ``on_metrics`` gets what probe and load report of themselves meanwhile, twice a second. Raises
    ``GaveUp`` when there is no such document in the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in _DOCUMENTS:
        (folder / name).unlink(missing_ok=True)  # of an earlier run into the same folder
    (folder / documents.TEST).write_text(
        run.test.model_dump_json(by_alias=True, exclude_none=True, indent=1)
    )
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder / "scratch", ignore_errors=True)
        stages = LocalStages(
            run, steps, folder, timeout_s, view, rehearsal=rehearsal, on_metrics=on_metrics
        )
        ends.callback(stages.end)
        shown = None
        while not (next_one := advance(stages.observe())).activity.is_end:
            if next_one.start is not None:
                stages.start(next_one.start)
            if next_one.activity is not shown and next_one.activity in _TITLES:
                view.stage(_TITLES[next_one.activity])
            shown = next_one.activity
            stages.poll()
    return _result(folder, run, stages.last_words(Stage.VERIFY))


def _result(folder: Path, run: Run, last_words: str) -> Result:
    """The verdict is that of the document, and of nothing else."""
    path = folder / documents.REPORT
    try:
        result = Result.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise GaveUp(f"there is no verdict: {last_words}") from error
    if result.run != run.name:
        raise GaveUp(f"there is no verdict: {path} is of another run, {result.run}")
    return result
