"""The chart in a real registry: pushed as ``make push`` does, and installed from there."""

import tarfile
from pathlib import Path

import pytest
import yaml
from images.chart import CHART, find_helm, is_loopback, push_chart
from support.helm import KUBERNETES, REQUIRED, helm, helm_binary, render
from support.registry import running_registry

from headrace.errors import Fatal

ABOUT = yaml.safe_load((CHART / "Chart.yaml").read_text())


def test_the_chart_is_pushed_and_rendered_from_the_registry(tmp_path: Path) -> None:
    with running_registry() as registry:
        name = push_chart(str(helm_binary()), f"{registry}/team/", tmp_path)
        artifact, _, digest = name.partition("@")
        assert artifact == f"{registry}/team/charts/headrace"
        url = f"oci://{artifact}"
        shown = yaml.safe_load(helm("show", "chart", url, "--plain-http"))
        assert shown == ABOUT
        by_digest = helm(
            "template", "headrace", f"{url}@{digest}", "--plain-http", "--namespace=kafka",
            f"--kube-version={KUBERNETES}", REQUIRED,
        )  # fmt: skip
        assert [one for one in yaml.safe_load_all(by_digest) if one] == render()
    package = tmp_path / f"headrace-{ABOUT['version']}.tgz"
    assert "headrace/values.schema.json" in _files(package)


def test_a_registry_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with running_registry() as registry:
        pass
    with pytest.raises(Fatal, match=rf"^helm push failed: .*{registry}"):
        push_chart(str(helm_binary()), registry, tmp_path)


def test_without_helm_nothing_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM", "/nowhere/helm")
    with pytest.raises(Fatal, match=r"^nothing was done: Helm is not on PATH"):
        find_helm()


@pytest.mark.parametrize(
    ("registry", "here"),
    [
        ("localhost:5000/team", True),
        ("127.0.0.1:5000", True),
        ("[::1]:5000", True),
        ("localhost.example/team", False),
        ("registry.example:443/team", False),
    ],
)
def test_only_a_registry_of_this_machine_is_spoken_to_in_plain_text(
    registry: str, here: bool
) -> None:
    assert is_loopback(registry) is here


def _files(package: Path) -> list[str]:
    with tarfile.open(package) as archive:
        return archive.getnames()
