"""``headrace test rehearse``: the Job that carries out ``spec.rehearsal`` of a MirrorTest."""

import signal
import sys
import time
from collections.abc import Iterable, Set
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from headrace import logs
from headrace.api import load
from headrace.cli.mirror_test.fail_over_commands import FailOverCommands
from headrace.cli.mirror_test.job_of_a_test import job_options, plan_text
from headrace.cli.mirror_test.rehearsal import FailOver
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import journal
from headrace.logs import get_logger
from headrace.mirror_test import LoadTail, Rehearsed, Run, documents, read_rehearsal
from headrace.mirror_test.sequence import ENDS_WITHIN_S

log = get_logger(__name__)

_POLL_S = 0.3
_LOAD_BEGINS_WITHIN_S = 900.0
"""The load's Job has its image to pull and its executors to place, up to 300 s each."""


@click.command(hidden=True)
@job_options
@click.option(
    "--after-chaos", is_flag=True, help="Wait for the end of a Job of chaos in the journal."
)
def command(
    *, test: Path, name: str, plan: Path, ready: Path, after_chaos: bool, secrets: Path | None
) -> None:
    """Rehearse the fail-over of a mirror test's flow, and report it in the journal.

    The groups of the plan read while the load of the run is sent. Then the flow is failed over, the
    groups resume on the target, and the fail-over is undone. The file `ready` is created when the
    load may begin. If a pod of this Job was killed before, only its changes are undone.
    """
    logs.configure()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    (found,) = load([test]).tests
    run = Run(name=name, test=found, secrets=secrets)
    planned = read_rehearsal(plan_text(plan), str(plan))
    journal.create(run.source)
    with closing(_Watch(run, after_chaos=after_chaos)) as watch:
        earlier = journal.read_all(run.source, run.name).keys()
        if documents.REHEARSAL_KEY in earlier:
            _clean_up(run, planned, earlier)
            raise GaveUp("a pod of this Job was killed before: nothing is rehearsed again")
        watch.seen.update(earlier)
        _report(run, planned)
        outcome = _rehearsed(run, planned, watch, ready)
    if outcome.error:
        log.warning("not rehearsed", flow=run.flow, why=outcome.error)
    else:
        log.info("rehearsed", flow=run.flow, groups=len(outcome.groups), took_s=outcome.seconds)


def _rehearsed(run: Run, planned: Rehearsed, watch: "_Watch", ready: Path) -> Rehearsed:
    """Its outcome, reported; in whatever way this ends, the flow copies on."""
    groups = [one.group for one in planned.groups]
    rehearsal = FailOver(run, groups, run.test.metadata.namespace)
    try:
        rehearsal.start()
        ready.touch()
        watch.follow(rehearsal)
        log.info("failing over", flow=run.flow)
        journal.write(run.source, run.name, documents.FAILING_OVER_KEY, "{}")
        outcome = rehearsal.fail_over()
    except HeadraceError as error:
        outcome = Rehearsed(error=str(error))
    finally:
        why = rehearsal.end()
        _note(run, planned, why)
    outcome = outcome.model_copy(update={"not_undone": why})
    _report(run, outcome)
    return outcome


def _clean_up(run: Run, planned: Rehearsed, journalled: Set[str]) -> None:
    """A flow that was failed over copies on; one that somebody else has stopped is left alone."""
    if documents.FAILING_OVER_KEY in journalled:
        _note(run, planned, FailOverCommands(run, run.test.metadata.namespace).undo())


def _note(run: Run, planned: Rehearsed, why: str | None) -> None:
    """Why it could not be undone, whatever becomes of this Job."""
    if why is not None:
        log.warning("the fail-over could not be undone", flow=run.flow, why=why)
        _report(run, planned.model_copy(update={"not_undone": why}))


def _report(run: Run, document: Rehearsed) -> None:
    text = document.model_dump_json(by_alias=True)
    journal.write(run.source, run.name, documents.REHEARSAL_KEY, text)


class _Watch:
    """Follows the load, and what runs beside it, in the journal."""

    def __init__(self, run: Run, *, after_chaos: bool) -> None:
        self._tail = journal.Tail(run.source, run.name)
        self._settle_s = run.test.spec.settle_seconds
        self._awaited = {documents.MEASURED_KEY}
        if after_chaos:
            self._awaited.add(documents.RECOVERED_KEY)
        self._load = LoadTail(self._poll, run.test.spec.load)
        self.seen: set[str] = set()
        """Keys of the run's records."""

    def follow(self, rehearsal: FailOver) -> None:
        """To the end of the load, and of probe and chaos, which a fail-over would disturb. Raises
        ``GaveUp`` for a load that is not worth a fail-over."""
        begins_by_s = time.monotonic() + _LOAD_BEGINS_WITHIN_S
        while not self._load.ended:
            self._load.receive(_POLL_S)
            if progress := self._load.clock.progress():
                rehearsal.progress(progress.percent)
            elif time.monotonic() > begins_by_s:
                raise GaveUp(f"no load began within {_LOAD_BEGINS_WITHIN_S:.0f} s")
        if documents.MANIFEST_KEY not in self.seen:
            raise GaveUp("the load ended without a manifest, so there is nothing to go on with")
        ends_by_s = time.monotonic() + self._settle_s + ENDS_WITHIN_S
        while not self._awaited <= self.seen and time.monotonic() < ends_by_s:
            self._load.receive(_POLL_S)

    def close(self) -> None:
        """Give the connection back."""
        self._tail.close()

    def _poll(self, timeout_s: float) -> Iterable[tuple[str, Any]]:
        found = list(self._tail.poll(timeout_s))
        self.seen.update(key for key, _ in found)
        return found
