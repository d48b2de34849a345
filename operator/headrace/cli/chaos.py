"""``headrace chaos``: the Job that carries out ``spec.chaos`` of a MirrorTest in pods."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import click
from pydantic import ValidationError

from headrace import logs
from headrace.api import load
from headrace.chaos import Chaos, LoadClock
from headrace.chaos.pods import FlowInPods
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import connect
from headrace.kafka import journal
from headrace.logs import get_logger
from headrace.mirror_test import Fault, Faults, Run

log = get_logger(__name__)

_LOOK_S = 0.3
_SILENCE_S = 120.0
"""Producers say how far they are twice a second: after so long without a word they are dead."""


@click.command(hidden=True)
@click.option("--test", type=click.Path(path_type=Path), required=True, help="Resolved test.")
@click.option("--run", "name", required=True, help="Name of the run.")
@click.option("--plan", type=click.Path(path_type=Path), required=True, help="Its steps.")
@click.option("--ready", type=click.Path(path_type=Path), required=True, help="File to make.")
@click.option("--secrets", type=click.Path(path_type=Path), help="Folder of Secrets.")
def command(test: Path, name: str, plan: Path, ready: Path, secrets: Path | None) -> None:
    """Break what the plan says while the load of the run goes on; tell the journal what came of it.

    The file `ready` is made when the load may begin.
    """
    logs.configure()
    (found,) = load([test]).tests
    run = Run(name=name, test=found, secrets=secrets)
    planned = read_plan(plan)
    with _flow_of(run) as flow:
        chaos = Chaos([fault.step for fault in planned], flow, found.spec.settle_seconds)
        journal.create(run.source)
        load_tail = LoadTail(journal.Tail(run.source, run.name), run)
        told = FaultReporter(run, planned)
        told.tell_at_last(())
        ready.touch()
        try:
            _watch(chaos, load_tail, told)
        finally:
            load_tail.close()
        told.tell_at_last(chaos.faults)


def read_plan(path: Path) -> tuple[Fault, ...]:
    """The steps, each with what is to be believed of it if nobody tells more."""
    try:
        return Faults.model_validate_json(path.read_text(encoding="utf-8")).faults
    except (OSError, ValidationError) as error:
        raise InvalidSpec(f"{path} is no plan of this version of headrace: {error}") from error


@contextmanager
def _flow_of(run: Run) -> Iterator[FlowInPods]:
    metadata = run.test.metadata
    if run.flow is None:
        raise InvalidSpec(f"test {metadata.name} has no flow whose parts could be broken")
    with asyncio.Runner() as runner:
        client = runner.run(connect("the chaos Job"))
        try:
            yield FlowInPods(
                client, runner.run, metadata.namespace, flow=run.flow, test=metadata.name
            )
        finally:
            runner.run(client.close())


def _watch(chaos: Chaos, load: "LoadTail", told: "FaultReporter") -> None:
    """Follow the load to its end, and the last recovery to its own."""
    ended = False
    while not ended or chaos.recovering:
        load.listen(_LOOK_S)
        if ended := load.ended:  # after what was said while a step was done
            chaos.end()
        if (progress := load.clock.progress()) is None:
            continue
        before = chaos.faults
        chaos.look(progress, time.monotonic())
        for old, fault in zip_longest(before, chaos.faults):
            if fault != old:
                _log(fault)
        told.tell(chaos.faults)
    chaos.end()


def _log(fault: Fault) -> None:
    """What was done, and later what became of it."""
    about = {"step": str(fault.step.action), "driver": fault.driver}
    if fault.error:
        log.warning("failed", **about, why=fault.error)
    elif fault.recovery_seconds is None:
        log.info("done", **about)
    else:
        log.info("recovered", **about, took_s=fault.recovery_seconds)


class LoadTail:
    """What the producers, and the load's Job at its end, say in the journal."""

    def __init__(self, tail: journal.Tail, run: Run) -> None:
        self._tail = tail
        self.clock = LoadClock(run.test.spec.load)
        self._acknowledged: dict[str, int] = {}
        self._heard_s: float | None = None
        self._manifest = False

    @property
    def ended(self) -> bool:
        """Whether all is sent, or those who sent are dead."""
        heard_s = self._heard_s
        silent = heard_s is not None and time.monotonic() - heard_s > _SILENCE_S
        return self._manifest or silent

    def listen(self, for_s: float) -> None:
        """Take in what was said; waits ``for_s`` for it."""
        until = time.monotonic() + for_s
        while (left_s := until - time.monotonic()) > 0:
            for fact, value in self._tail.poll(left_s):
                if fact.endswith(f"/{journal.PROGRESS}"):
                    self._acknowledged[fact] = value["acknowledged"]
                    self._heard_s = time.monotonic()
                self._manifest |= fact == journal.MANIFEST
        self.clock.acknowledged = sum(self._acknowledged.values())

    def close(self) -> None:
        """Give the connection back."""
        self._tail.close()


class FaultReporter:
    """What the journal has of the faults: of all that are planned, at any time."""

    def __init__(self, run: Run, planned: tuple[Fault, ...]) -> None:
        self._run, self._planned = run, planned
        self._said: Faults | None = None

    def tell(self, faults: tuple[Fault, ...]) -> None:
        """Write what changed; a source that does not answer now is told at the next look."""
        try:
            self.tell_at_last(faults)
        except HeadraceError as error:
            log.warning("not told, tried again", why=str(error))

    def tell_at_last(self, faults: tuple[Fault, ...]) -> None:
        """Write it; raises what the source answers."""
        document = Faults(faults=(*map(_believed, faults), *self._planned[len(faults) :]))
        if document != self._said:
            fact = journal.key(self._run.name, journal.FAULTS)
            journal.write(self._run.source, fact, document.model_dump_json(by_alias=True))
            self._said = document


def _believed(fault: Fault) -> Fault:
    """A recovery that is being watched, as it has to be read if nobody tells its end."""
    if fault.at_ms is None or fault.recovery_seconds is not None or fault.error:
        return fault
    ended = "the Job that watched it ended before it did"
    return fault.model_copy(update={"error": ended, "watched": False})
