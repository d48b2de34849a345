"""The bundle for the Operator Lifecycle Manager, from what Helm renders of the chart."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from images.bundle import NAMESPACE, write_bundle
from images.chart import render_chart
from support.helm import helm_binary

REPOSITORY = "registry.example/headrace"


@pytest.fixture(scope="module")
def rendered() -> list[Any]:
    return list(render_chart(str(helm_binary()), NAMESPACE, REPOSITORY))


@pytest.fixture
def bundle(rendered: list[Any], tmp_path: Path) -> Path:
    return write_bundle(rendered, tmp_path / "bundle")


def read(bundle: Path, name: str) -> Any:
    return yaml.safe_load((bundle / name).read_text())


def test_operator_has_the_permissions_of_the_chart(rendered: list[Any], bundle: Path) -> None:
    version = read(bundle, "manifests/headrace.clusterserviceversion.yaml")
    (granted,) = version["spec"]["install"]["spec"]["clusterPermissions"]
    binding = next(one for one in rendered if one and one["kind"] == "ClusterRoleBinding")
    role = next(
        one
        for one in rendered
        if one
        and one["kind"] == "ClusterRole"
        and one["metadata"]["name"] == binding["roleRef"]["name"]
    )
    assert granted == {
        "serviceAccountName": binding["subjects"][0]["name"],
        "rules": role["rules"],
    }


def test_operator_runs_in_the_namespace_of_its_subscription(bundle: Path) -> None:
    version = read(bundle, "manifests/headrace.clusterserviceversion.yaml")
    (deployment,) = version["spec"]["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--lease-namespace=$(POD_NAMESPACE)" in container["args"]
    assert f"={NAMESPACE}" not in str(container["args"]).replace("headrace-", "")
    assert container["env"][0]["name"] == "POD_NAMESPACE", "variables refer to earlier ones only"
    assert container["image"].startswith(f"{REPOSITORY}:")


def test_every_kind_is_owned_has_its_crd_and_an_example(bundle: Path) -> None:
    version = read(bundle, "manifests/headrace.clusterserviceversion.yaml")
    owned = {one["name"] for one in version["spec"]["customresourcedefinitions"]["owned"]}
    crds = {
        one.name.removesuffix(".customresourcedefinition.yaml")
        for one in (bundle / "manifests").glob("*.customresourcedefinition.yaml")
    }
    assert owned == crds
    assert len(owned) == 3
    examples = json.loads(version["metadata"]["annotations"]["alm-examples"])
    assert {one["kind"] for one in examples} == {"ReplicationFlow", "MirrorTest"}


def test_role_of_executors_is_kept_for_the_binding_that_the_operator_makes(bundle: Path) -> None:
    kept = {one.name for one in (bundle / "manifests").glob("*.clusterrole.yaml")}
    assert any("executors" in one for one in kept)
    assert "headrace-operator.headrace.clusterrole.yaml" not in kept


def test_dockerfile_has_the_labels_of_the_annotations(bundle: Path) -> None:
    text = (bundle / "bundle.Dockerfile").read_text()
    for name, value in read(bundle, "metadata/annotations.yaml")["annotations"].items():
        assert f"LABEL {name}={value}\n" in text
