"""The notes that Helm prints at the end of an installation: the next commands."""

import shutil
from pathlib import Path

import pytest
import yaml
from support.helm import CHART, KUBERNETES, REQUIRED, helm


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Return the chart with its notes as an object, because ``helm template`` prints none."""
    copy = tmp_path / "headrace"
    shutil.copytree(CHART, copy)
    notes = copy / "templates" / "NOTES.txt"
    (copy / "templates" / "_notes.tpl").write_text(
        f'{{{{ define "notes" }}}}{notes.read_text()}{{{{ end }}}}'
    )
    notes.unlink()
    (copy / "templates" / "shown.yaml").write_text('notes: {{ include "notes" . | quote }}\n')
    return copy


def notes(chart: Path, *arguments: str) -> str:
    about = ("mine", str(chart), "--namespace=kafka", f"--kube-version={KUBERNETES}", REQUIRED)
    text = helm("template", *about, "--show-only=templates/shown.yaml", *arguments)
    shown: str = yaml.safe_load(text)["notes"]
    return shown


def commands(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def test_the_next_commands_are_those_of_this_release(chart: Path) -> None:
    own = ("--set=scope=Namespace", "--set=watchNamespaces={shop}")
    assert commands(notes(chart, *own)) == [
        "kubectl -n kafka rollout status deployment/mine-headrace-operator",
        "kubectl -n kafka logs --prefix --tail=200 -l app.kubernetes.io/component=operator,"
        "app.kubernetes.io/instance=mine",
        "helm test mine -n kafka",
        "kubectl -n shop apply -f flow.yaml",
        "kubectl -n shop wait --for=condition=Ready --timeout=5m rflow --all",
        "kubectl -n shop get rflow,rtask",
        "kubectl -n shop apply -f test.yaml",
        "kubectl -n shop get mirrortest",
        "kubectl -n shop delete rflow,mirrortest --all",
    ]


def test_what_is_not_there_is_not_advised(chart: Path) -> None:
    assert "test.yaml" not in notes(chart, "--set=mirrorTests.enabled=false")
    assert "kubectl get crd" in notes(chart, "--set=crds.enabled=false")
