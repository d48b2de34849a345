"""The Job that carries out ``spec.rehearsal``.

It is the only Job that gets a second pod: when the first one was killed, that one undoes the
fail-over, and rehearses nothing.
"""

from math import ceil

from headrace.api import Load
from headrace.controller.mirror_tests.beside_the_load import build_pod
from headrace.controller.mirror_tests.run import WRITABLE, TestRun
from headrace.k8s import Object
from headrace.mirror_test import Stage, assumed_per_second, build_rehearsal

_GRACE_PERIOD_S = 120
"""To undo the fail-over: a command that reads progress on the target, and writes it."""
_PROCESSES_MIB, _GROUP_MIB = 448, 8
"""Python twice, itself and `headrace failover`; a consumer with what it has fetched."""
_RECORD_BYTES, _DELIVERED_BYTES = 700, 8
"""A record of the load, in the logs and sets that it is counted by; one that a group was
delivered."""

RETRIES: Object = {
    "backoffLimit": 1,
    "podFailurePolicy": {
        "rules": [
            {
                # Ended with a sentence: there is nothing left to undo. A signal is above these.
                "action": "FailJob",
                "onExitCodes": {
                    "containerName": Stage.REHEARSAL.value,
                    "operator": "In",
                    "values": [1, 2, 3],
                },
            }
        ]
    },
}
"""Of its Job."""


def rehearsal_plan(run: TestRun) -> str:
    """The document that Job and verifier get, of a run that has one."""
    assert run.rehearsal is not None
    unreported = f"Job {run.part(Stage.REHEARSAL)} ended before it was done"
    return build_rehearsal(run.name, run.rehearsal, unreported)


def build_rehearsal_pod(run: TestRun) -> Object:
    """What its pod is. Its consumers read both clusters, as the flow's own principals."""
    spec = run.test.spec
    return build_pod(
        run,
        Stage.REHEARSAL,
        (spec.source, spec.target),
        f"{_memory_mib(run)}Mi",
        options=["--after-chaos"] if run.steps else [],
        env=[{"name": "HOME", "value": WRITABLE}],
        terminationGracePeriodSeconds=_GRACE_PERIOD_S,
    )


def _memory_mib(run: TestRun) -> int:
    groups = run.rehearsal.groups if run.rehearsal else 0
    record_bytes = _RECORD_BYTES + groups * _DELIVERED_BYTES
    counted_mib = ceil(_records(run.test.spec.load) * record_bytes / (1 << 20))
    return _PROCESSES_MIB + groups * _GROUP_MIB + counted_mib


def _records(load: Load) -> int:
    """As far as it is known beforehand."""
    if load.messages is not None:
        return load.messages
    return (load.duration_seconds or 0) * assumed_per_second(load)
