"""The manifests of docs/gitops.md, from the page: their effect on a real API server.

Argo CD and Flux do not run here. Both render this chart with the values of their manifest, apply
it, and compare from then on: a field that the API server stores otherwise is a lasting difference.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api_server import ApiServer
from support.helm import CHART, render

pytestmark = pytest.mark.usefixtures("helm_program")

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "gitops.md").read_text(), re.DOTALL)
Object = dict[str, Any]
MANIFESTS: dict[str, Object] = {
    one["kind"]: one for block in BLOCKS for one in yaml.safe_load_all(block)
}
HOOK = "helm.sh/hook"
OURS = "headrace.dev/v1beta1"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def of_argo_cd() -> tuple[str, Object]:
    """Return the path of Argo CD's chart, and its values."""
    source = MANIFESTS["Application"]["spec"]["source"]
    return source["path"], source["helm"]["valuesObject"]


def of_flux() -> tuple[str, Object]:
    """Return the path of Flux's chart, and its values."""
    spec = MANIFESTS["HelmRelease"]["spec"]
    return spec["chart"]["spec"]["chart"], spec["values"]


def release_name(tool: str) -> str:
    """Flux takes the name of the HelmRelease."""
    if tool == "argo-cd":
        return str(MANIFESTS["Application"]["spec"]["source"]["helm"]["releaseName"])
    return str(MANIFESTS["HelmRelease"]["metadata"]["name"])


@pytest.mark.parametrize(
    ("tool", "manager"), [("argo-cd", "argocd-controller"), ("flux", "helm-controller")]
)
def test_the_release_is_taken_and_stored_as_it_is_rendered(
    api_server: ApiServer, namespace: str, tmp_path: Path, tool: str, manager: str
) -> None:
    path, values = of_argo_cd() if tool == "argo-cd" else of_flux()
    assert ROOT / path == CHART
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    objects = [
        one
        for one in render(
            f"--values={tmp_path}/values.yaml", release=release_name(tool), namespace=namespace
        )
        if HOOK not in one["metadata"].get("annotations", {})
    ]
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(values["image"]["repository"] + ":")
    assert not [one for one in objects if one["kind"] == "Lease"], "Argo CD excludes the kind"
    stored = as_stored(api_server, namespace, manager, objects)
    differences = [
        f"{rendered['kind']} {rendered['metadata']['name']}: {difference}"
        for rendered, live in zip(objects, stored, strict=True)
        for difference in changed(rendered, live)
    ]
    assert differences == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_in_git_is_stored_as_it_is(
    api_server: ApiServer, namespace: str, example: Path
) -> None:
    written = list(yaml.safe_load_all(example.read_text()))
    objects = [one for one in written if one["apiVersion"] == OURS]  # Secrets are stored as base64
    stored = as_stored(api_server, namespace, "kustomize-controller", objects)
    assert [
        difference
        for written, live in zip(objects, stored, strict=True)
        for difference in changed(written, live)
    ] == []


def as_stored(
    api_server: ApiServer, namespace: str, manager: str, objects: list[Object]
) -> list[Object]:
    """Return objects by a dry run of a server-side apply, which adds all defaults."""
    answer = api_server.kubectl(
        "-n", namespace, "apply", "--server-side", "--force-conflicts", "--dry-run=server",
        f"--field-manager={manager}", "-o", "json", "-f", "-",
        input=yaml.safe_dump_all(objects),
    )  # fmt: skip
    found = json.loads(answer)
    items: list[Object] = found["items"] if found["kind"] == "List" else [found]
    return items


def changed(written: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield the fields of ``written`` that differ in ``live``, as a three-way diff has them."""
    if isinstance(written, dict) and isinstance(live, dict):
        for key, value in written.items():
            yield from changed(value, live.get(key), f"{path}.{key}")
    elif isinstance(written, list) and isinstance(live, list) and len(written) == len(live):
        for number, (one, other) in enumerate(zip(written, live, strict=True)):
            yield from changed(one, other, f"{path}[{number}]")
    elif written != live:
        yield f"{path} is {written!r}, stored as {live!r}"
