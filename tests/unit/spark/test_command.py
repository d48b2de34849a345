"""What the verifier believes of faults that another job made."""

from pathlib import Path
from typing import Any

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import ChaosAction, ChaosStep, MirrorTest
from headrace.errors import GaveUp
from headrace.kafka import journal
from headrace.mirror_test import Fault, Faults, Run
from headrace_spark import command

KILL = ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50)
PLAN = Fault(step=KILL, error="nobody did it")
DONE = Fault(step=KILL, at_ms=5, recovery_seconds=2.5)
RUN = Run(
    name="r1",
    test=MirrorTest.model_validate(mirror_test_of_another("nightly")),
)


def write(path: Path, fault: Fault) -> Path:
    path.write_text(Faults(faults=(fault,)).model_dump_json(by_alias=True))
    return path


@pytest.mark.parametrize(("reported", "believed"), [(None, PLAN), (DONE, DONE)])
def test_what_nobody_tells_of_a_step_is_in_the_plan(
    reported: Fault | None, believed: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(cluster: Any, run: str, key: str) -> Any:
        assert (run, key) == ("r1", "faults")
        return reported and Faults(faults=(reported,)).model_dump(mode="json", by_alias=True)

    monkeypatch.setattr(journal, "read", read)
    plan = write(tmp_path / "plan.json", PLAN)
    assert command._faults(RUN, tmp_path, plan) == (believed,)


def test_without_a_plan_they_are_in_the_folder(tmp_path: Path) -> None:
    assert command._faults(RUN, tmp_path, None) == ()
    write(tmp_path / "chaos.json", DONE)
    assert command._faults(RUN, tmp_path, None) == (DONE,)


def test_a_plan_that_is_lost_is_no_plan_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(GaveUp, match="nobody knows what was to be broken"):
        command._faults(RUN, tmp_path, tmp_path / "plan.json")
