"""All pods of a release in a namespace with Pod Security ``restricted`` and a quota.

They are the chart's pods, and the operator's: drivers, each stage of a mirror test, and its
executors. The rules are those of
https://kubernetes.io/docs/concepts/security/pod-security-standards, and OpenShift's
``restricted-v2`` adds that no pod names a user.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helm import CHART, ROOT, render

from headrace.api import ChaosAction, ChaosStep, MirrorTest, Rehearsal, ReplicationFlow
from headrace.cli.operator import command
from headrace.controller import DriverDefaults, FixedRole, Images, SparkDefaults
from headrace.controller.mirror_tests import TestRun, build_run
from headrace.controller.mirror_tests.jobs import build_job
from headrace.controller.mirror_tests.run import with_spark_defaults
from headrace.controller.resources import build_deployment, with_defaults
from headrace.mirror_test import Stage

EVERYTHING = f"--values={Path(__file__).parent / 'golden' / 'everything.values.yaml'}"
GOLDEN = ROOT / "tests" / "unit" / "controller" / "golden"
HOST = ("hostNetwork", "hostPID", "hostIPC", "hostUsers")
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "projected", "secret"}
VOLUMES |= {"persistentVolumeClaim"}

Pod = dict[str, Any]


@cache
def pods(*arguments: str) -> dict[str, Pod]:
    """Return the specs of all pods of a release with these values, by their kind."""
    objects = render(*arguments)
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    (test,) = (one for one in objects if one["kind"] == "Pod")
    operator = deployment["spec"]["template"]["spec"]
    (container,) = operator["containers"]
    given = command.make_context("operator", list(container["args"])).params
    return {
        "operator": operator,
        "helm test": test["spec"],
        **drivers(DriverDefaults.model_validate_json(given["driver_defaults"])),
        **mirror_test(SparkDefaults.model_validate_json(given["spark_defaults"])),
    }


def drivers(defaults: DriverDefaults) -> dict[str, Pod]:
    def made(case: str, *, chaos: bool) -> Pod:
        text = (GOLDEN / case / "flow.yaml").read_text()
        flow = with_defaults(ReplicationFlow.model_validate(yaml.safe_load(text)), defaults)
        pod: Pod = build_deployment(flow, "headrace:1", chaos=chaos)["spec"]["template"]["spec"]
        return pod

    return {
        "driver": made("small", chaos=False),
        "driver with secrets": made("everything", chaos=False),
        "driver with chaos": made("small", chaos=True),
    }


def mirror_test(defaults: SparkDefaults) -> dict[str, Pod]:
    text = (GOLDEN / "mirror-test" / "test.yaml").read_text()
    test = with_spark_defaults(MirrorTest.model_validate(yaml.safe_load(text)), defaults)
    steps = (ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=30),)
    role = FixedRole("ClusterRole", "chaos")
    run = TestRun(test, Images("headrace-spark:1"), steps, role, Rehearsal(), role)
    (kept,) = (one for one in build_run(run) if "executor.json" in one.get("data", ()))
    return {
        "executor": json.loads(kept["data"]["executor.json"])["spec"],
        **{stage.value: build_job(run, stage)["spec"]["template"]["spec"] for stage in Stage},
    }


def containers(pod: Pod) -> Iterator[dict[str, Any]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(kind, ())


def violations(pod: Pod) -> list[str]:
    """Return settings that ``restricted`` refuses, or a namespace that sets the users of pods."""
    found = [name for name in HOST if pod.get(name)]
    outer = pod.get("securityContext", {})
    found += [f"pod: {name}" for name in outer.keys() - {"runAsNonRoot", "seccompProfile"}]
    for container in containers(pod):
        of = container["name"]
        own = container.get("securityContext", {})
        both = outer | own
        if both.get("runAsNonRoot") is not True:
            found.append(f"{of}: may run as root")
        if (both.get("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
            found.append(f"{of}: seccompProfile")
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            found.append(f"{of}: privileges")
        if own.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{of}: capabilities")
        if own.get("readOnlyRootFilesystem") is not True:
            found.append(f"{of}: writes to its root")
        if "runAsUser" in own or "runAsGroup" in own:
            found.append(f"{of}: names a user")
        found += [f"{of}: hostPort" for port in container.get("ports", ()) if "hostPort" in port]
    for volume in pod.get("volumes", ()):
        found += [f"volume {kind}" for kind in volume.keys() - {"name"} - VOLUMES]
    return found


KINDS = (
    *("operator", "helm test", "driver", "driver with secrets", "driver with chaos", "executor"),
    *(stage.value for stage in Stage),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", [(), (EVERYTHING,)], ids=["default", "everything"])
def test_no_pod_violates_the_restricted_profile_or_names_a_user(
    arguments: tuple[str, ...], kind: str
) -> None:
    assert violations(pods(*arguments)[kind]) == []


def test_pods_of_all_kinds_are_checked() -> None:
    assert pods().keys() == set(KINDS)


@pytest.mark.parametrize(
    ("spec", "violation"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"securityContext": {"runAsNonRoot": False}}, "operator: may run as root"),
        ({"securityContext": {"fsGroup": 1}}, "pod: fsGroup"),
        ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "volume hostPath"),
        ({"initContainers": [{"name": "wait"}]}, "wait: capabilities"),
    ],
)
def test_a_violation_is_found(spec: Pod, violation: str) -> None:
    assert violation in violations(pods()["operator"] | spec)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_lines_of_a_log_are_in_the_status_of_its_pod(kind: str) -> None:
    for container in containers(pods()[kind]):
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def named(kind: str, found: dict[str, Pod], what: str) -> set[str]:
    """Return the resources that a container of such a pod has as ``requests`` or ``limits``."""
    if kind == "executor":  # Spark sets both for memory from its settings
        (container,) = found[Stage.PRODUCE.value]["containers"]
        cores = f"--conf=spark.kubernetes.executor.{what.removesuffix('s')}.cores="
        told = any(one.startswith(cores) for one in container["args"])
        return {"memory", "cpu"} if told else {"memory"}
    (container,) = found[kind]["containers"]
    return set(container["resources"].get(what, ()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_container_asks_for_what_it_takes_and_has_a_limit_of_memory(kind: str) -> None:
    found = pods()
    assert named(kind, found, "requests") == {"cpu", "memory"}
    assert "memory" in named(kind, found, "limits")


def values_of(section: str, folder: Path) -> str:
    """Return the values in a section of the chart's page."""
    page = (CHART / "README.md").read_text()
    (block,) = re.findall(rf"## {section}\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    values = folder / "values.yaml"
    values.write_text(block)
    return f"--values={values}"


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_values_for_a_quota_every_container_has_limits(kind: str, tmp_path: Path) -> None:
    found = pods(values_of("Quotas", tmp_path))
    for what in ("requests", "limits"):
        assert named(kind, found, what) == {"cpu", "memory"}


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_values_for_a_private_registry_every_pod_names_the_secret(
    kind: str, tmp_path: Path
) -> None:
    pod = pods(values_of("Private registries and service meshes", tmp_path))[kind]
    assert {"name": "registry"} in pod["imagePullSecrets"]
