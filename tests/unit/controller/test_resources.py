"""A flow in, the manifests of its children out, compared with the files in ``golden``.

``HEADRACE_GOLDEN=write pytest tests/unit/controller`` writes them again; read the difference.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.pods import RULES

from headrace.api import ReplicationFlow
from headrace.api.cluster import Tls, TrustedCertificate
from headrace.api.labels import FLOW_LABEL
from headrace.api.quantities import quantity
from headrace.controller.resources import (
    CONNECTORS,
    DRIVER_RULES,
    DriverDefaults,
    FixedRole,
    build_children,
    build_deployment,
    build_unit,
    template_hash,
    with_defaults,
)
from headrace.controller.resources.deployment import TEMPLATE
from headrace.k8s import Object

GOLDEN = Path(__file__).parent / "golden"
IMAGE = "headrace:golden"
ROLE = FixedRole("ClusterRole", "headrace-operator-drivers.ops")


def read(case: str) -> ReplicationFlow:
    return ReplicationFlow.model_validate(yaml.safe_load((GOLDEN / case / "flow.yaml").read_text()))


@pytest.mark.parametrize("case", ["small", "everything", "stopped"])
def test_children_are_as_they_were_agreed(case: str) -> None:
    flow = read(case)
    children = build_children(flow, IMAGE, network_policy=case == "everything")
    children += [build_unit(flow, type) for type in CONNECTORS]
    page = GOLDEN / case / "children.yaml"
    text = yaml.safe_dump_all(children, sort_keys=False, width=99)
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        page.write_text(text)
    assert text == page.read_text()


def walk(value: object, path: str = "") -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [hit for key, inner in value.items() for hit in walk(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [hit for inner in value for hit in walk(inner, path)]
    return [(path, value)]


def everything() -> list[Object]:
    return build_children(read("everything"), IMAGE, network_policy=True)


def given() -> list[Object]:
    """Return the permissions of drivers."""
    rules: list[Object] = next(child["rules"] for child in everything() if child["kind"] == "Role")
    return rules


def test_drivers_have_no_right_on_secrets_and_no_wildcard() -> None:
    granted = [str(word) for _, word in walk(given())]
    assert not [word for word in granted if "*" in word or "secret" in word]


def test_a_volume_of_a_secret_is_optional_and_whole() -> None:
    pod = build_deployment(read("everything"), IMAGE)["spec"]["template"]["spec"]
    secrets = {v["name"]: v["secret"] for v in pod["volumes"] if "secret" in v}
    mounts = {m["name"]: m for m in pod["containers"][0]["volumeMounts"] if m["name"] in secrets}
    assert [s["secretName"] for s in secrets.values()] == [
        "east-ca",
        "headrace.east.client",
        "west",
    ]
    assert all(secret["optional"] for secret in secrets.values())
    for name, secret in secrets.items():
        assert mounts[name]["mountPath"] == f"/etc/headrace/secrets/{secret['secretName']}"
        assert "subPath" not in mounts[name]


def test_config_maps_are_mounted_beside_secrets() -> None:
    flow = read("everything")
    trusted = TrustedCertificate(config_map_name="west-ca")
    tls = Tls(trusted_certificates=(trusted,))
    target = flow.spec.target.model_copy(update={"tls": tls})
    flow = flow.model_copy(update={"spec": flow.spec.model_copy(update={"target": target})})
    pod = build_deployment(flow, IMAGE)["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if "configMap" in one]
    assert volume["configMap"] == {"name": "west-ca", "optional": True}
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]] == "/etc/headrace/secrets/_configmaps/west-ca"


def driven_by(**fields: Any) -> ReplicationFlow:
    """Return the smallest flow whose drivers have these settings."""
    document = read("small").model_dump(mode="json", by_alias=True, exclude_none=True)
    document["spec"]["drivers"] = fields
    return ReplicationFlow.model_validate(document)


def test_volumes_and_variables_of_drivers() -> None:
    flow = driven_by(
        env=[
            {"name": "PLAIN", "value": "1"},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
        ],
        volumes=[{"name": "token", "projected": {"sources": []}}, {"name": "own", "emptyDir": {}}],
        volumeMounts=[{"name": "token", "mountPath": "/token", "readOnly": True}],
    )
    pod = build_deployment(flow, IMAGE)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["env"][-2:] == [
        {"name": "PLAIN", "value": "1"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    ]
    assert pod["volumes"][-2:] == [
        {"name": "token", "projected": {"sources": []}},
        {"name": "own", "emptyDir": {}},
    ]
    assert container["volumeMounts"][-1] == {
        "name": "token",
        "mountPath": "/token",
        "readOnly": True,
    }


def test_annotations_of_the_drivers_service_account() -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/headrace"}
    flow = driven_by(serviceAccount={"annotations": role})
    (account,) = (
        one
        for one in build_children(flow, IMAGE, network_policy=False)
        if one["kind"] == "ServiceAccount"
    )
    assert account["metadata"]["annotations"] == role


@pytest.mark.parametrize(
    ("asked", "budget"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"maxUnavailable": 2}, {"maxUnavailable": 2}),
        ({"minAvailable": "50%"}, {"minAvailable": "50%"}),
    ],
)
def test_budget_of_drains(asked: dict[str, Any], budget: dict[str, Any]) -> None:
    flow = driven_by(podDisruptionBudget=asked)
    (made,) = (
        one
        for one in build_children(flow, IMAGE, network_policy=False)
        if one["kind"] == "PodDisruptionBudget"
    )
    assert made["spec"].items() >= budget.items()
    assert len(made["spec"].keys() & {"maxUnavailable", "minAvailable"}) == 1


def test_a_users_labels_do_not_take_the_pods_away_from_their_deployment() -> None:
    """The definitions reject such a label, but an object of an earlier version may have one."""
    flow = read("everything")
    metadata = flow.spec.drivers.pod_template.metadata.model_copy(
        update={"labels": {FLOW_LABEL: "other"}}
    )
    template = flow.spec.drivers.pod_template.model_copy(update={"metadata": metadata})
    drivers = flow.spec.drivers.model_copy(update={"pod_template": template})
    flow = flow.model_copy(update={"spec": flow.spec.model_copy(update={"drivers": drivers})})
    deployment = build_deployment(flow, IMAGE)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels[FLOW_LABEL] == "orders"
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("case", "keys"),
    [
        ("small", {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}),
        ("everything", {"topology.kubernetes.io/zone"}),
    ],
)
def test_drivers_are_spread_and_a_constraint_counts_those_of_the_flow(
    case: str, keys: set[str]
) -> None:
    deployment = build_deployment(read(case), IMAGE)
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in spread} == keys
    assert {one["whenUnsatisfiable"] for one in spread} == {"ScheduleAnyway"}
    for constraint in spread:
        assert constraint["labelSelector"] == deployment["spec"]["selector"]


def test_a_constraint_that_selects_pods_stays_as_it_is() -> None:
    flow = yaml.safe_load((GOLDEN / "everything" / "flow.yaml").read_text())
    selector = {"matchLabels": {"team": "shop"}}
    template = flow["spec"]["drivers"]["podTemplate"]
    template["topologySpreadConstraints"][0]["labelSelector"] = selector
    deployment = build_deployment(ReplicationFlow.model_validate(flow), IMAGE)
    (one,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert one["labelSelector"] == selector


def test_scaling_and_stopping_make_no_new_template_and_a_new_image_does() -> None:
    flow = read("small")
    scaled = flow.spec.model_copy(
        update={"drivers": flow.spec.drivers.model_copy(update={"replicas": 9})}
    )
    before = build_deployment(flow, IMAGE)
    after = build_deployment(flow.model_copy(update={"spec": scaled}), IMAGE)
    assert template_hash(before) == template_hash(after)
    assert template_hash(before) != template_hash(build_deployment(flow, "headrace:newer"))
    assert before["spec"]["template"]["metadata"]["labels"][TEMPLATE] == template_hash(before)


def rights(rules: list[Object]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rules(file: str) -> list[Object]:
    folder = Path(__file__).parents[3] / "charts" / "headrace" / "files"
    found: list[Object] = yaml.safe_load((folder / f"{file}-rules.yaml").read_text())
    return found


def test_chart_grants_drivers_what_the_operator_would_grant() -> None:
    assert rules("driver") == list(DRIVER_RULES)


def test_operator_that_binds_a_role_has_every_other_permission_that_it_grants() -> None:
    children = build_children(read("small"), IMAGE, network_policy=False, driver_role=ROLE)
    (role,) = (one for one in children if one["kind"] == "Role")
    assert rights(role["rules"]) - rights(rules("operator")) == set()
    bindings = [one for one in children if one["kind"] == "RoleBinding"]
    assert [one["roleRef"]["name"] for one in bindings] == [role["metadata"]["name"], ROLE.name]
    (subject,) = {str(one["subjects"]) for one in bindings}
    assert "orders-driver" in subject


def test_another_role_of_drivers_has_another_binding() -> None:
    def names(role: FixedRole) -> set[str]:
        children = build_children(read("small"), IMAGE, network_policy=False, driver_role=role)
        return {one["metadata"]["name"] for one in children if one["kind"] == "RoleBinding"}

    assert len(names(ROLE) | names(replace(ROLE, kind="Role"))) == 3


def test_the_operator_makes_no_pods_and_gives_nobody_its_right_to_delete_them() -> None:
    own = rights(rules("operator")) | rights(rules("mirror-test"))
    passed_on = rights(rules("executor")) - own
    assert {verb for _, resource, verb in passed_on if resource == "pods"} == {
        "create",
        "get",
        "deletecollection",
    }


def test_without_mirror_tests_the_operator_only_reads_pods() -> None:
    for resource, verbs in {
        "pods": {"list", "watch"},
        "jobs": set(),
        "configmaps": set(),
    }.items():
        assert {v for _, of, v in rights(rules("operator")) if of == resource} == verbs


def test_drivers_are_given_what_they_are_tested_with_and_no_more() -> None:
    assert rights(given()) == rights(RULES)


def test_a_flow_overrides_what_all_drivers_have_field_by_field() -> None:
    wide = DriverDefaults.model_validate(
        {
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
            "env": [{"name": "TZ", "value": "UTC"}, {"name": "HEADRACE_LOG_LEVEL", "value": "x"}],
            "podTemplate": {
                "metadata": {"labels": {"team": "platform", "cost": "1"}},
                "priorityClassName": "high",
                "runtimeClassName": "gvisor",
                "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["broker"]}],
                "terminationGracePeriodSeconds": 60,
            },
        }
    )
    own = {
        "resources": {"requests": {"cpu": "2"}},
        "env": [{"name": "HEADRACE_LOG_LEVEL", "value": "ERROR"}],
        "podTemplate": {"metadata": {"labels": {"team": "a"}}, "priorityClassName": "low"},
    }
    small = read("small")
    drivers = small.spec.drivers.model_validate(own)
    flow = small.model_copy(update={"spec": small.spec.model_copy(update={"drivers": drivers})})
    template = build_deployment(with_defaults(flow, wide), IMAGE)["spec"]["template"]
    spec = template["spec"]
    assert {"team": "a", "cost": "1"}.items() <= template["metadata"]["labels"].items()
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "256Mi"}
    *_, zone, level = spec["containers"][0]["env"]
    assert zone == {"name": "TZ", "value": "UTC"}
    assert level == {"name": "HEADRACE_LOG_LEVEL", "value": "ERROR"}
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("low", "gvisor")
    assert spec["hostAliases"] == [{"ip": "10.0.0.1", "hostnames": ["broker"]}]
    assert spec["terminationGracePeriodSeconds"] == 60
    assert with_defaults(small, DriverDefaults()) == small
    before = build_deployment(small, IMAGE)
    assert template_hash(build_deployment(with_defaults(small, wide), IMAGE)) != template_hash(
        before
    )


def test_a_flow_says_whose_its_processes_are_and_stays_restricted() -> None:
    ids = {"runAsUser": 10001, "fsGroup": 7, "supplementalGroups": [8]}
    own = {"podTemplate": {"securityContext": ids}}
    small = read("small")
    drivers = small.spec.drivers.model_validate(own)
    flow = small.model_copy(update={"spec": small.spec.model_copy(update={"drivers": drivers})})
    pod = build_deployment(flow, IMAGE)["spec"]["template"]["spec"]
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["securityContext"] == ids | restricted


def test_a_default_that_contradicts_a_flow_is_left_out() -> None:
    """The API server rejects a pod that requests more than its limit."""
    wide = DriverDefaults.model_validate(
        {"resources": {"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}}
    )

    def made(**resources: dict[str, str]) -> Object:
        drivers = small.spec.drivers.model_validate({"resources": resources})
        flow = small.model_copy(update={"spec": small.spec.model_copy(update={"drivers": drivers})})
        pod = build_deployment(with_defaults(flow, wide), IMAGE)["spec"]["template"]["spec"]
        found: Object = pod["containers"][0]["resources"]
        return found

    small = read("small")
    assert made() == wide.resources.model_dump()
    assert made(limits={"memory": "128Mi"}) == {
        "requests": {"cpu": "1"},
        "limits": {"memory": "128Mi"},
    }
    assert made(requests={"memory": "4Gi"}) == {"requests": {"cpu": "1", "memory": "4Gi"}}
    for limit in ("256Mi", "1Gi", "1e9"):
        assert made(limits={"memory": limit}) == {
            "requests": {"cpu": "1", "memory": "256Mi"},
            "limits": {"memory": limit},
        }
    assert made(requests={"memory": "1G"})["limits"] == {"memory": "2Gi"}


def test_quantities_are_compared_as_kubernetes_does() -> None:
    rising = ["1n", "1u", "1m", "100m", "0.5", "1", "1k", "1Ki", "1M", "1Mi", "1e7", "1G", "1Gi"]
    assert sorted(rising, key=quantity) == rising
    assert quantity("1000m") == quantity("1") == quantity("1.")
    assert quantity("1E") == quantity("1e18") == 10**18
    assert quantity("2Ei") == 2 * 1024**6


def test_when_images_of_drivers_are_pulled() -> None:
    small, wide = read("small"), DriverDefaults(image_pull_policy="Always")
    drivers = small.spec.drivers.model_validate({"imagePullPolicy": "Never"})
    own = small.model_copy(update={"spec": small.spec.model_copy(update={"drivers": drivers})})

    def policy(flow: ReplicationFlow) -> object:
        pod = build_deployment(flow, IMAGE)["spec"]["template"]["spec"]
        return pod["containers"][0].get("imagePullPolicy")

    assert policy(small) is None
    assert policy(with_defaults(small, wide)) == "Always"
    assert policy(with_defaults(own, wide)) == "Never"


def test_how_drivers_log_is_changed_without_a_roll_out() -> None:
    small = read("small")
    drivers = small.spec.drivers.model_validate({"logLevel": "DEBUG", "logFormat": "json"})
    flow = small.model_copy(update={"spec": small.spec.model_copy(update={"drivers": drivers})})
    assert build_deployment(flow, IMAGE) == build_deployment(small, IMAGE)


def test_processes_are_shared_for_chaos_only() -> None:
    specs = [
        build_deployment(read("small"), IMAGE, chaos=chaos)["spec"]["template"]["spec"]
        for chaos in (False, True)
    ]
    assert [spec.get("shareProcessNamespace") for spec in specs] == [None, True]
