"""``headrace test chaos`` and ``rehearse``: commands that run as Jobs of a mirror test."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import closing, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace import logs
from headrace.api import ChaosAction, load
from headrace.chaos import ByAction, Chaos, FaultInjector, PauseFaults
from headrace.chaos.pods import OTHER_POD_ACTIONS as OTHER_ACTIONS
from headrace.chaos.pods import POD_ACTIONS, OtherPods, PodInjector
from headrace.cli.mirror_test.faults import LoadFaults, RecoveryProbe
from headrace.cli.mirror_test.rehearsal import FailOver, FailOverCommands
from headrace.errors import GaveUp, HeadraceError, InvalidSpec
from headrace.k8s import connect
from headrace.kafka import journal
from headrace.logs import get_logger
from headrace.mirror_test import (
    Fault,
    Faults,
    LoadTail,
    MirrorTestRun,
    Rehearsed,
    documents,
    read_plan,
    read_rehearsal,
)
from headrace.mirror_test.sequence import ENDS_TIMEOUT_S

Command = TypeVar("Command", bound=Callable[..., Any])

_PATH: Any = click.Path(path_type=Path)


def job_options(command: Command) -> Command:
    """Add the parameters ``test``, ``name`` (of the run), ``plan``, ``ready`` and ``secrets``."""
    for option in (
        click.option("--secrets", type=_PATH, metavar="DIR", help="Folder of Secrets."),
        click.option(
            "--ready", type=_PATH, metavar="FILE", required=True, help="File to create when ready."
        ),
        click.option("--plan", type=_PATH, metavar="FILE", required=True, help="File of the plan."),
        click.option("--run", "name", metavar="RUN", required=True, help="Name of the run."),
        click.option(
            "--test", type=_PATH, metavar="FILE", required=True, help="File of the resolved test."
        ),
    ):
        command = option(command)
    return command


def plan_text(path: Path) -> str:
    """Return the text of a plan. Raise ``InvalidSpec`` if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"the plan {path} cannot be read: {error}") from error


log = get_logger(__name__)

_POLL_S = 0.3


@click.command(hidden=True)
@job_options
def chaos_command(test: Path, name: str, plan: Path, ready: Path, secrets: Path | None) -> None:
    """Inject the faults of the plan during the load, and report them in the journal.

    The file `ready` is created when the load may begin.
    """
    logs.configure()
    (found,) = load([test]).tests
    run = MirrorTestRun(name=name, test=found, secrets=secrets)
    planned = read_plan(plan_text(plan), str(plan))
    with _injector_of(run) as injector:
        chaos = Chaos(planned.steps, injector, found.spec.settle_seconds)
        journal.create(run.source)
        tail = journal.JournalTail(run.source, run.name)
        reporter = FaultReporter(run, planned)
        reporter.report(())
        ready.touch()
        try:
            inject_during_load(chaos, LoadTail(tail.poll, found.spec.load), reporter)
        finally:
            tail.close()
        reporter.report(chaos.faults)
    # Written after the injector has undone its faults: a fail-over may be rehearsed from now on.
    journal.write(run.source, run.name, documents.RECOVERED_KEY, "{}")


def injectors(
    *,
    load: FaultInjector,
    others: FaultInjector | None = None,
    flow: FaultInjector | None = None,
    pauses: FaultInjector | None = None,
) -> dict[ChaosAction, FaultInjector]:
    """Return the injector of each chaos action in a cluster.

    Actions that only ``headrace verify`` supports (``ChaosAction.is_of_machine``) are not included.
    Actions whose injector is None are also not included.
    """
    found = {action: load for action in ChaosAction if action.is_of_load}
    if others is not None:
        found |= dict.fromkeys(OTHER_ACTIONS, others)
    if flow is not None:
        found |= dict.fromkeys(POD_ACTIONS, flow)
    if pauses is not None:
        found[ChaosAction.PAUSE_FLOW] = pauses
    return found


@contextmanager
def _injector_of(run: MirrorTestRun) -> Iterator[FaultInjector]:
    """Yield the injector of a run. At the end, and on SIGTERM, resume a paused flow."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    topics, metadata, since = LoadFaults(run), run.test.metadata, RecoveryProbe(run).since
    with asyncio.Runner() as runner:
        client = runner.run(connect("the chaos Job"))
        try:
            others = OtherPods(client, runner.run, metadata.namespace, since)
            if run.flow is None:
                yield ByAction(injectors(load=topics, others=others))
                return
            pods = PodInjector(
                client, runner.run, metadata.namespace, flow=run.flow, test=metadata.name
            )
            pauses = PauseFaults(pods.set_state, since)
            try:
                yield ByAction(injectors(load=topics, others=others, flow=pods, pauses=pauses))
            finally:
                try:
                    pauses.restore()
                except HeadraceError as error:
                    log.warning("the flow is still paused", flow=run.flow, why=str(error))
        finally:
            runner.run(client.close())


def inject_during_load(
    chaos: Chaos, load: LoadTail, reporter: "FaultReporter", poll_s: float = _POLL_S
) -> None:
    """Inject faults until the load has ended and the last recovery is known.

    ``poll_s`` is the interval of the checks, in seconds.
    """
    ended = False
    while not ended or chaos.recovering:
        load.receive(poll_s)
        if ended := load.ended:  # after the events that arrived during a step
            chaos.end()
        if (progress := load.clock.progress()) is None:
            continue
        before = chaos.faults
        chaos.advance(progress, time.monotonic())
        for old, fault in zip_longest(before, chaos.faults):
            if fault != old:
                _log(fault)
        reporter.report_if_possible(chaos.faults)
    chaos.end()


def _log(fault: Fault) -> None:
    """Log that a fault was injected, and later its outcome."""
    about = {"step": str(fault.step.action), "driver": fault.driver}
    if fault.error:
        log.warning("failed", **about, why=fault.error)
    elif fault.recovery_seconds is None:
        log.info("done", **about)
    else:
        log.info("recovered", **about, took_s=fault.recovery_seconds)


class FaultReporter:
    """Keeps all planned faults with their outcomes in the journal."""

    def __init__(self, run: MirrorTestRun, planned: Faults) -> None:
        self._run, self._planned = run, planned
        self._reported: Faults | None = None

    def report_if_possible(self, faults: tuple[Fault, ...]) -> None:
        """Write changed faults. If the source does not respond, the next call writes them."""
        try:
            self.report(faults)
        except HeadraceError as error:
            log.warning("not reported, tried again", why=str(error))

    def report(self, faults: tuple[Fault, ...]) -> None:
        """Write changed faults. Raise an error if the source does not respond."""
        document = self._planned.updated(faults)
        if document != self._reported:
            text = document.model_dump_json(by_alias=True)
            journal.write(self._run.source, self._run.name, documents.FAULTS_KEY, text)
            self._reported = document


_LOAD_BEGINS_TIMEOUT_S = 900.0
"""Time limit for the start of the load, in seconds.

The load's Job has to pull its image and to place its executors, which takes up to 300 s each.
"""


@click.command(hidden=True)
@job_options
@click.option(
    "--after-chaos", is_flag=True, help="Wait for the end of a Job of chaos in the journal."
)
def rehearse_command(
    *, test: Path, name: str, plan: Path, ready: Path, after_chaos: bool, secrets: Path | None
) -> None:
    """Rehearse the fail-over of a mirror test's flow, and report it in the journal.

    The groups of the plan read while the load of the run is sent. Then the flow is failed over, the
    groups resume on the target, and the fail-over is undone. The file `ready` is created when the
    load may begin. If an earlier pod of this Job was killed, only the
    changes of that pod are undone.
    """
    logs.configure()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    (found,) = load([test]).tests
    run = MirrorTestRun(name=name, test=found, secrets=secrets)
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


def _rehearsed(run: MirrorTestRun, planned: Rehearsed, watch: "_Watch", ready: Path) -> Rehearsed:
    """Rehearse the fail-over, undo it in any case, and report the outcome."""
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


def _clean_up(run: MirrorTestRun, planned: Rehearsed, journalled: Set[str]) -> None:
    """Undo the fail-over of a pod that was killed, so that the flow copies again.

    A flow that a user has stopped is not changed.
    """
    if documents.FAILING_OVER_KEY in journalled:
        _note(run, planned, FailOverCommands(run, run.test.metadata.namespace).undo())


def _note(run: MirrorTestRun, planned: Rehearsed, why: str | None) -> None:
    """Report why the fail-over could not be undone, before this Job may be killed."""
    if why is not None:
        log.warning("the fail-over could not be undone", flow=run.flow, why=why)
        _report(run, planned.model_copy(update={"not_undone": why}))


def _report(run: MirrorTestRun, document: Rehearsed) -> None:
    text = document.model_dump_json(by_alias=True)
    journal.write(run.source, run.name, documents.REHEARSAL_KEY, text)


class _Watch:
    """Follows the load, the probe and the chaos Job in the journal."""

    def __init__(self, run: MirrorTestRun, *, after_chaos: bool) -> None:
        self._tail = journal.JournalTail(run.source, run.name)
        self._settle_s = run.test.spec.settle_seconds
        self._awaited = {documents.MEASURED_KEY}
        if after_chaos:
            self._awaited.add(documents.RECOVERED_KEY)
        self._load = LoadTail(self._poll, run.test.spec.load)
        self.seen: set[str] = set()
        """Keys of the run's records."""

    def follow(self, rehearsal: FailOver) -> None:
        """Wait for the end of the load, the probe and the chaos, which a fail-over would disturb.

        Raise ``GaveUp`` if no load began, or if it ended without a manifest.
        """
        begins_by_s = time.monotonic() + _LOAD_BEGINS_TIMEOUT_S
        while not self._load.ended:
            self._load.receive(_POLL_S)
            if progress := self._load.clock.progress():
                rehearsal.progress(progress.percent)
            elif time.monotonic() > begins_by_s:
                raise GaveUp(f"no load began within {_LOAD_BEGINS_TIMEOUT_S:.0f} s")
        if documents.MANIFEST_KEY not in self.seen:
            raise GaveUp("the load ended without a manifest, so no fail-over is rehearsed")
        ends_by_s = time.monotonic() + self._settle_s + ENDS_TIMEOUT_S
        while not self._awaited <= self.seen and time.monotonic() < ends_by_s:
            self._load.receive(_POLL_S)

    def close(self) -> None:
        self._tail.close()

    def _poll(self, timeout_s: float) -> Iterable[tuple[str, Any]]:
        found = list(self._tail.poll(timeout_s))
        self.seen.update(key for key, _ in found)
        return found
