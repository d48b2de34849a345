"""Each step of chaos has an injector or is rejected with a sentence, here and in a cluster."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.api import ChaosAction, ChaosStep, Side
from headrace.chaos import ByAction, Injection, refused
from headrace.cli.mirror_test import jobs as in_pods
from headrace.cli.mirror_test import local_faults as on_machine
from headrace.errors import InvalidSpec

FIELDS: dict[str, Any] = {
    "drivers": 2,
    "cluster": Side.SOURCE,
    "broker": 1,
    "command": ("true",),
    "partitions": 1,
    "seconds": 1,
    "selector": {"app": "mirror"},
    "deployment": "mirror",
    "replicas": 1,
}


class Injector:
    """Injector that accepts any step."""

    def inject(self, step: ChaosStep) -> Injection:
        return Injection(1, lambda: True, driver=str(step.action))


def step(action: ChaosAction) -> ChaosStep:
    """Return a step with its required fields."""
    return ChaosStep.model_construct(action=action, at_seconds=1, **FIELDS)


def done_by(found: dict[ChaosAction, Any]) -> Iterator[ChaosAction]:
    for action in ChaosAction:
        try:
            ByAction(found).inject(step(action))
        except InvalidSpec:
            continue
        yield action


def test_on_one_machine_each_step_is_done_or_refused() -> None:
    names = ("drivers", "brokers", "load", "pauses", "commands")
    done = set(done_by(on_machine.injectors(**{name: Injector() for name in names})))
    turned_down = {action for action in ChaosAction if list(refused([step(action)]))}
    assert done | turned_down == set(ChaosAction)
    assert not done & turned_down


def test_in_a_cluster_each_step_is_done_or_refused() -> None:
    """The operator rejects steps of a machine (``controller.mirror_tests.stages``)."""
    everyone = {name: Injector() for name in ("load", "others", "flow", "pauses")}
    done = set(done_by(in_pods.injectors(**everyone)))
    assert done == {action for action in ChaosAction if not action.is_of_machine}


def test_a_step_that_nobody_does_is_a_sentence() -> None:
    with pytest.raises(
        InvalidSpec, match="KillDriver is not possible with the mirror of this test"
    ):
        ByAction(in_pods.injectors(load=Injector())).inject(step(ChaosAction.KILL_DRIVER))
