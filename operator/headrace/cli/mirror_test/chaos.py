"""``headrace test chaos``: the Job that carries out ``spec.chaos`` of a MirrorTest."""

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import click

from headrace import logs
from headrace.api import ChaosAction, load
from headrace.chaos import ByAction, Chaos, FaultInjector, PauseFaults
from headrace.chaos.pods import OTHER_POD_ACTIONS as OTHER_ACTIONS
from headrace.chaos.pods import POD_ACTIONS, OtherPods, PodInjector
from headrace.cli.mirror_test.arrivals import Arrivals
from headrace.cli.mirror_test.job_of_a_test import job_options, plan_text
from headrace.cli.mirror_test.load_faults import LoadFaults
from headrace.errors import HeadraceError
from headrace.k8s import connect
from headrace.kafka import journal
from headrace.logs import get_logger
from headrace.mirror_test import Fault, Faults, LoadTail, Run, documents, read_plan

log = get_logger(__name__)

_POLL_S = 0.3


@click.command(hidden=True)
@job_options
def command(test: Path, name: str, plan: Path, ready: Path, secrets: Path | None) -> None:
    """Inject the faults of the plan during the load, and report them in the journal.

    The file `ready` is created when the load may begin.
    """
    logs.configure()
    (found,) = load([test]).tests
    run = Run(name=name, test=found, secrets=secrets)
    planned = _read_plan(plan)
    with _injector_of(run) as injector:
        chaos = Chaos(planned.steps, injector, found.spec.settle_seconds)
        journal.create(run.source)
        tail = journal.Tail(run.source, run.name)
        reporter = FaultReporter(run, planned)
        reporter.report(())
        ready.touch()
        try:
            _watch(chaos, LoadTail(tail.poll, found.spec.load), reporter)
        finally:
            tail.close()
        reporter.report(chaos.faults)
    # After what the injector undoes: a fail-over may be rehearsed then.
    journal.write(run.source, run.name, documents.RECOVERED_KEY, "{}")


def _read_plan(path: Path) -> Faults:
    return read_plan(plan_text(path), str(path))


def injectors(
    *,
    load: FaultInjector,
    others: FaultInjector | None = None,
    flow: FaultInjector | None = None,
    pauses: FaultInjector | None = None,
) -> dict[ChaosAction, FaultInjector]:
    """Who does which step of chaos in a cluster: all but those that only ``headrace verify`` can
    do (``ChaosAction.is_of_machine``). Without a flow only those that need none."""
    found = {action: load for action in ChaosAction if action.is_of_load}
    if others is not None:
        found |= dict.fromkeys(OTHER_ACTIONS, others)
    if flow is not None:
        found |= dict.fromkeys(POD_ACTIONS, flow)
    if pauses is not None:
        found[ChaosAction.PAUSE_FLOW] = pauses
    return found


@contextmanager
def _injector_of(run: Run) -> Iterator[FaultInjector]:
    """Undoes in the end what only a step itself would undo later; on SIGTERM, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    topics, metadata, since = LoadFaults(run), run.test.metadata, Arrivals(run).since
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


def _watch(chaos: Chaos, load: LoadTail, reporter: "FaultReporter") -> None:
    """Follow the load to its end, and the last recovery to its own."""
    ended = False
    while not ended or chaos.recovering:
        load.receive(_POLL_S)
        if ended := load.ended:  # after what was reported while a step was done
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
    """That it was injected, and later its outcome."""
    about = {"step": str(fault.step.action), "driver": fault.driver}
    if fault.error:
        log.warning("failed", **about, why=fault.error)
    elif fault.recovery_seconds is None:
        log.info("done", **about)
    else:
        log.info("recovered", **about, took_s=fault.recovery_seconds)


class FaultReporter:
    """Keeps the faults in the journal up to date: at any time all that are planned."""

    def __init__(self, run: Run, planned: Faults) -> None:
        self._run, self._planned = run, planned
        self._reported: Faults | None = None

    def report_if_possible(self, faults: tuple[Fault, ...]) -> None:
        """Write what changed; with a source that does not answer, the next call does."""
        try:
            self.report(faults)
        except HeadraceError as error:
            log.warning("not reported, tried again", why=str(error))

    def report(self, faults: tuple[Fault, ...]) -> None:
        """Write what changed; raises the source's error."""
        document = self._planned.updated(faults)
        if document != self._reported:
            text = document.model_dump_json(by_alias=True)
            journal.write(self._run.source, self._run.name, documents.FAULTS_KEY, text)
            self._reported = document
