"""Health of our objects in GitOps tools, for objects read from a real API server.

Argo CD uses our scripts. Flux and others use the rules of kstatus.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

FOLDER = Path(__file__).parents[2] / "examples" / "argo-cd"
KINDS = FOLDER / "resource_customizations" / "headrace.dev"
TESTS = [
    (folder.parent.name, test)
    for folder in sorted(KINDS.glob("*/health_test.yaml"))
    for test in yaml.safe_load(folder.read_text())["tests"]
]
"""Tests in the form of Argo CD's own tests."""

AS_KSTATUS_HAS_IT = {
    "Healthy": "Current",
    "Degraded": "Failed",
    "Progressing": "InProgress",
    "Suspended": "Current",
}
OTHERWISE = {
    # No reconcile has written a status: kstatus considers an object without conditions current.
    ("ReplicationFlow", "new"): "Current",
    ("MirrorTest", "new"): "Current",
    # Retried automatically: not stalled.
    ("ReplicationFlow", "task-failed"): "InProgress",
    # A source task has no Ready condition: its flow has one, and users do not apply tasks.
    ("ReplicationTask", "failed"): "Current",
    ("ReplicationTask", "new"): "Current",
    ("ReplicationTask", "restoring"): "Current",
}
"""Cases in which the two cannot agree, with the reason."""


def health(kind: str, object: dict[str, Any]) -> dict[str, str]:
    """Run a health script as Argo CD does, with only Lua's base library and its tables."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.execute("getmetatable('').__index = nil")
    for library in ("string", "math", "io", "os", "debug", "coroutine", "python"):
        lua.globals()[library] = None
    lua.globals().obj = lua.table_from(object, recursive=True)
    return dict(lua.execute((KINDS / kind / "health.lua").read_text()))


def kstatus(object: dict[str, Any]) -> str:
    """Return the status of an object by the rules of kstatus.

    They are ``checkGenericProperties`` and ``checkReadyCondition`` of cli-utils,
    ``pkg/kstatus/status``.
    """
    status = object.get("status", {})
    if (
        status.get("observedGeneration", object["metadata"]["generation"])
        != (object["metadata"]["generation"])
    ):
        return "InProgress"
    holds = {one["type"]: one["status"] for one in status.get("conditions", [])}
    if holds.get("Reconciling") == "True":
        return "InProgress"
    if holds.get("Stalled") == "True":
        return "Failed"
    return "Current" if holds.get("Ready", "True") == "True" else "InProgress"


@pytest.mark.parametrize(
    ("kind", "test"), TESTS, ids=[f"{kind}-{Path(t['inputPath']).stem}" for kind, t in TESTS]
)
def test_a_recorded_object_is_shown_as_it_stands(kind: str, test: dict[str, Any]) -> None:
    object = yaml.safe_load((KINDS / kind / test["inputPath"]).read_text())
    assert object["kind"] == kind
    assert health(kind, object) == test["healthStatus"]
    name = Path(test["inputPath"]).stem
    expected = OTHERWISE.get((kind, name), AS_KSTATUS_HAS_IT[test["healthStatus"]["status"]])
    assert kstatus(object) == expected


def test_what_was_said_of_an_earlier_spec_does_not_count() -> None:
    for path in KINDS.glob("*/testdata/*.yaml"):
        object = yaml.safe_load(path.read_text())
        if "observedGeneration" in object.get("status", {}):
            object["metadata"]["generation"] += 1
            assert (health(object["kind"], object)["status"], kstatus(object)) == (
                "Progressing",
                "InProgress",
            )


def test_every_script_is_tested_and_handed_to_argo_cd() -> None:
    scripts = {path.parent.name: path for path in KINDS.glob("*/health.lua")}
    assert scripts.keys() == {kind for kind, _ in TESTS}
    recorded = set(KINDS.glob("*/testdata/*.yaml"))
    assert recorded == {KINDS / kind / test["inputPath"] for kind, test in TESTS}
    made = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"][0]
    assert dict(one.split("=") for one in made["files"]) == {
        f"resource.customizations.health.headrace.dev_{kind}": str(path.relative_to(FOLDER))
        for kind, path in scripts.items()
    }
