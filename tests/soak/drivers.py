"""Faults of drivers, and of their credentials."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
from confluent_kafka import KafkaException
from soak.faults import FaultJournal, FaultKind
from soak.hazards import Inflict
from soak.stage import DRIVERS, LEASE_S, Stage, certify
from support.flows import words_of
from support.security import change_password

PAST_LEASE_S, WITHIN_LEASE_S = (LEASE_S + 3, LEASE_S + 9), (1.5, LEASE_S / 2)
_CHANGED_S = 180.0
_GRACE_S = 2.0
"""A driver that is on its way out is no victim."""


def identity(process: psutil.Process) -> str:
    """Return a driver's ``<name>/<incarnation>``; empty for another or an ended process."""
    try:
        words = words_of(process)
        return f"{words[words.index('--name') + 1]}/{words[words.index('--incarnation') + 1]}"
    except (psutil.Error, ValueError, IndexError):
        return ""


class DriverFaults:
    """Faults of a run's drivers: all but the veteran may be killed, any may be frozen."""

    def __init__(self, stage: Stage, journal: FaultJournal, veteran: int) -> None:
        """Prepare the faults; ``veteran`` is the process whose memory is watched."""
        self._stage, self._journal, self._veteran = stage, journal, veteran
        self._passwords = 0

    def deck(self) -> list[tuple[FaultKind, Inflict]]:
        """Return the faults of drivers; kills and freezes occur twice as often as the others."""
        return [
            (FaultKind.DRIVER_KILLED, self._kill),
            (FaultKind.DRIVER_FROZEN, self._freeze),
            (FaultKind.DRIVER_STALLED, self._stall),
            (FaultKind.PASSWORD_CHANGED, self._change_password),
            (FaultKind.DRIVER_KILLED, self._kill),
            (FaultKind.DRIVER_FROZEN, self._freeze),
            (FaultKind.CERTIFICATE_CHANGED, self._change_certificate),
        ]

    def recovered(self) -> bool:
        """Return whether all source tasks run, on the configured number of drivers."""
        return len(self._stage.run.settled(DRIVERS)) > 0

    def _drivers(self, *, veteran: bool) -> dict[str, psutil.Process]:
        found = {identity(process): process for process in self._stage.run.drivers()}
        return {
            name: process
            for name, process in sorted(found.items())
            if name and (veteran or process.pid != self._veteran)
        }

    def _kill(self, chance: random.Random, stop: threading.Event) -> None:
        if not (drivers := self._drivers(veteran=False)):
            return
        name, process = chance.choice(list(drivers.items()))
        with self._journal.fault(FaultKind.DRIVER_KILLED, name, name):
            process.kill()
            stop.wait(_GRACE_S)

    def _freeze(self, chance: random.Random, stop: threading.Event) -> None:
        self._suspend(FaultKind.DRIVER_FROZEN, chance, stop, PAST_LEASE_S)

    def _stall(self, chance: random.Random, stop: threading.Event) -> None:
        self._suspend(FaultKind.DRIVER_STALLED, chance, stop, WITHIN_LEASE_S)

    def _suspend(
        self,
        kind: FaultKind,
        chance: random.Random,
        stop: threading.Event,
        for_s: tuple[float, float],
    ) -> None:
        if not (drivers := self._drivers(veteran=True)):
            return
        name, process = chance.choice(list(drivers.items()))
        with self._journal.fault(kind, name, name), suppress(psutil.NoSuchProcess):
            process.suspend()
            try:
                stop.wait(chance.uniform(*for_s))
            finally:
                process.resume()

    def _change_password(self, chance: random.Random, stop: threading.Event) -> None:
        """Change the password in the cluster first: clients that log in before the Secret fail."""
        self._passwords += 1
        source, password = self._stage.source, f"rotated-{self._passwords}"
        with self._journal.fault(FaultKind.PASSWORD_CHANGED, f"cluster {source.name}"):
            _until_done(lambda: change_password(source, password))
            stop.wait(chance.uniform(0, 3))
            content = {"password": password.encode()}
            self._stage.mounted.write(f"{source.name}-user", content)

    def _change_certificate(self, _: random.Random, __: threading.Event) -> None:
        stage, on = self._stage, f"cluster {self._stage.target.name}"
        with self._journal.fault(FaultKind.CERTIFICATE_CHANGED, on):
            certify(stage.mounted, stage.target, stage.authority)


def _until_done(change: Callable[[], None]) -> None:
    """Retry a change: brokers may be unreachable, and a time-out does not show its outcome."""
    deadline = time.monotonic() + _CHANGED_S
    while True:
        try:
            return change()
        except (KafkaException, TimeoutError):
            if time.monotonic() > deadline:
                raise
