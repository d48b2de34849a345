"""GitHub workflows, checked by actionlint, which Go builds once."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from cluster.build import FLAGS, PROXIES
from cluster.program import Module, Program

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = Program(
    "actionlint",
    "actionlint",
    Module(ROOT / "tests" / "cluster" / "actionlint", FLAGS, "20 MB of downloads"),
    "github.com/rhysd/actionlint/cmd/actionlint",
    0.2,
    PROXIES,
)


def test_actionlint_accepts_the_workflows() -> None:
    assert len(WORKFLOWS) > 1
    # Other programs that actionlint starts differ between machines.
    command: list[str | Path] = [
        ACTIONLINT.get(),
        "-no-color",
        "-shellcheck=",
        "-pyflakes=",
        *WORKFLOWS,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_actionlint_rejects_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "broken.yml"
    file.write_text(WORKFLOWS[-1].read_text().replace("runs-on:", "run-on:", 1))
    done = subprocess.run([ACTIONLINT.get(), file], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'unexpected key "run-on"' in done.stdout


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_run_make_targets_and_files_that_exist(file: Path) -> None:
    text = file.read_text()
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text()))
    assert set(re.findall(r"\bmake ([a-z0-9-]+)", text)) <= targets
    named = re.findall(r"(?:operator|spark-jobs|tools|charts)/[\w./-]*\w", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_job_has_only_the_permissions_that_it_names(file: Path) -> None:
    assert yaml.safe_load(file.read_text())["permissions"] == {"contents": "read"}
