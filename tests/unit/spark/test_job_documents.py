"""Checks of a job on the documents that other jobs of its run wrote."""

from pathlib import Path
from typing import Any

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import ChaosAction, ChaosStep, MirrorTest, Rehearsal
from headrace.errors import GaveUp
from headrace.kafka import journal
from headrace.mirror_test import (
    Fault,
    Faults,
    LoadManifest,
    MirrorTestRun,
    Rehearsed,
    RehearsedGroup,
    build_rehearsal,
)
from headrace_spark import job_documents

KILL = ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50)
PLAN = Fault(step=KILL, error="nobody did it")
DONE = Fault(step=KILL, at_ms=5, recovery_seconds=2.5)
RUN = MirrorTestRun(
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
    assert job_documents.faults(RUN, tmp_path, plan) == (believed,)


def test_without_a_plan_they_are_in_the_folder(tmp_path: Path) -> None:
    assert job_documents.faults(RUN, tmp_path, None) == ()
    write(tmp_path / "chaos.json", DONE)
    assert job_documents.faults(RUN, tmp_path, None) == (DONE,)


MANIFEST = LoadManifest(
    run="r1", topics=(), streams=(), started_ms=1, finished_ms=2, acknowledged_per_second=()
)


def keep(monkeypatch: pytest.MonkeyPatch, **records: Any) -> None:
    """Set the journal's records of the run."""
    monkeypatch.setattr(journal, "read", lambda cluster, run, key: records.get(key))
    monkeypatch.setattr(journal, "read_all", lambda cluster, run: records)


def test_a_damaged_manifest_is_replaced_by_the_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(monkeypatch, manifest=MANIFEST.model_dump(mode="json", by_alias=True))
    (tmp_path / "manifest.json").write_text('{"version": 2, "run": "r1", "topi')
    assert job_documents.manifest(RUN, tmp_path) == MANIFEST
    assert "the copy in mm2-headrace-tests.internal of east is used" in capsys.readouterr().err


@pytest.mark.parametrize("copy", [{}, {"manifest": {"version": 1}}])
def test_a_manifest_that_is_damaged_everywhere_is_said_to_be(
    copy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(monkeypatch, **copy)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(GaveUp, match="cannot be read"):
        job_documents.manifest(RUN, tmp_path)


def test_a_load_without_a_manifest_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = {f"r1-{n}-0/progress": {"acknowledged": 1_000 + n} for n in range(2)}
    keep(monkeypatch, **progress)
    with pytest.raises(GaveUp, match=r"came to 2,001 acknowledged messages"):
        job_documents.manifest(RUN, tmp_path)


def test_a_plan_that_is_lost_is_no_plan_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(GaveUp, match="so the planned faults are unknown"):
        job_documents.faults(RUN, tmp_path, tmp_path / "plan.json")


REHEARSED = Rehearsed(groups=(RehearsedGroup(group="g", committed=9, reread=0, skipped=0),))


def test_a_rehearsal_that_nobody_reports_has_the_error_of_its_plan_and_no_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(build_rehearsal("r1", Rehearsal(groups=3), "it ended"))
    keep(monkeypatch)
    assert job_documents.rehearsed(RUN, tmp_path, None) is None
    assert job_documents.rehearsed(RUN, tmp_path, plan) == Rehearsed(error="it ended")
    keep(monkeypatch, rehearsal=REHEARSED.model_dump(mode="json", by_alias=True))
    assert job_documents.rehearsed(RUN, tmp_path, plan) == REHEARSED
