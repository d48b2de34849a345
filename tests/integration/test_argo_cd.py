"""The part that a platform engineer includes in the kustomization of their Argo CD."""

import shutil
from pathlib import Path
from typing import Any

import yaml
from cluster.api_server import ApiServer

OURS = Path(__file__).parents[2] / "examples" / "argo-cd"
THEIRS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "argocd-cm", "labels": {"app.kubernetes.io/part-of": "argocd"}},
    "data": {"url": "https://argocd.example.com"},
}


def test_the_health_checks_join_argo_cds_own_settings(
    api_server: ApiServer, tmp_path: Path
) -> None:
    shutil.copytree(OURS, tmp_path / "headrace")
    (tmp_path / "argocd-cm.yaml").write_text(yaml.safe_dump(THEIRS))
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["argocd-cm.yaml"], "components": ["headrace"]})
    )
    made = yaml.safe_load(api_server.kubectl("kustomize", str(tmp_path)))
    scripts = {
        f"resource.customizations.health.headrace.dev_{path.parent.name}": path.read_text()
        for path in OURS.glob("resource_customizations/headrace.dev/*/health.lua")
    }
    assert len(scripts) == 3
    assert made["metadata"] == THEIRS["metadata"]
    assert made["data"] == THEIRS["data"] | scripts
