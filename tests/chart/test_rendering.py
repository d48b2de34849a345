"""Values in, the objects of a release out, as stored in ``golden``.

``HEADRACE_GOLDEN=write pytest tests/chart`` writes them again; read the difference.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helm import CHART, KUBERNETES, REQUIRED, ROOT, helm, render

from headrace.api import Model
from headrace.api.pods import EnvVar, PodTemplate
from headrace.api.quantities import Resources
from headrace.api.spark import SparkAmounts, SparkPod, SparkResources
from headrace.cli.operator import command
from headrace.controller import OPERATOR_LEASE, DriverDefaults, SparkDefaults

GOLDEN = Path(__file__).parent / "golden"
CASES = ["cluster", "namespace", "everything"]
CRD = "CustomResourceDefinition"
ROLES = {"Role", "ClusterRole"}
FILES = ("operator", "mirror-test", "driver", "executor", "chaos", "rehearsal", "view", "edit")
(
    RULES,
    RULES_OF_TESTS,
    RULES_OF_DRIVERS,
    RULES_OF_EXECUTORS,
    RULES_OF_CHAOS,
    RULES_OF_REHEARSALS,
    *_,
) = (f"{file}-rules.yaml" for file in FILES)

Object = dict[str, Any]


def values_of(case: str) -> str:
    return f"--values={GOLDEN / case}.values.yaml"


def rules(file: str) -> Any:
    return yaml.safe_load((CHART / "files" / file).read_text())


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [object for object in objects if object["kind"] in kinds]


def operator(*arguments: str) -> Object:
    (deployment,) = of_kind(render(*arguments), "Deployment")
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


def shortened(given: list[Object]) -> Iterator[str | Object]:
    """Yield the objects, with the names of files instead of their rules."""
    while given:
        for file in FILES:
            there = rules(f"{file}-rules.yaml")
            if given[: len(there)] == there:
                yield f"those of files/{file}-rules.yaml"
                given = given[len(there) :]
                break
        else:
            yield given[0]
            given = given[1:]


@pytest.mark.parametrize("case", CASES)
def test_a_release_is_as_it_was_agreed(case: str) -> None:
    objects = [object for object in render(values_of(case)) if object["kind"] != CRD]
    for role in of_kind(objects, *ROLES):
        role["rules"] = list(shortened(role["rules"]))
    for dashboard in of_kind(objects, "ConfigMap"):
        dashboard["data"] = dict.fromkeys(dashboard["data"], "that of files/dashboards")
    text = yaml.safe_dump_all(objects, sort_keys=True, width=99)
    page = GOLDEN / f"{case}.yaml"
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        page.write_text(text)
    assert text == page.read_text()


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_no_fault(case: str) -> None:
    about = ("--strict", f"--kube-version={KUBERNETES}", REQUIRED)
    output = helm("lint", *about, values_of(case), str(CHART))
    assert "0 chart(s) failed" in output


def roles_of(objects: list[Object]) -> dict[str, Object]:
    """Return all roles by name, except the one for the Lease of the operator's leader."""
    roles = {role["metadata"]["name"]: role for role in of_kind(objects, *ROLES)}
    return {name: role for name, role in roles.items() if "-lease" not in name}


def may_bind(kind: str, *names: str) -> Object:
    return {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": [f"{kind.lower()}s"],
        "resourceNames": list(names),
        "verbs": ["bind"],
    }


@pytest.mark.parametrize(
    ("scope", "kind", "namespace"),
    [("Cluster", "ClusterRole", None), ("Namespace", "Role", "kafka")],
)
def test_the_operator_gets_the_rights_of_the_file_and_no_others(
    scope: str, kind: str, namespace: str | None
) -> None:
    only = (f"--set=scope={scope}", "--set=rbac.aggregate=false")
    roles = roles_of(render(*only))
    assert {(r["kind"], r["metadata"].get("namespace")) for r in roles.values()} == {
        (kind, namespace)
    }
    (drivers,) = (name for name in roles if "drivers" in name)
    assert roles.pop(drivers)["rules"] == rules(RULES_OF_DRIVERS)
    (name,) = (name for name in roles if "executors" in name)
    assert roles.pop(name)["rules"] == rules(RULES_OF_EXECUTORS)
    (role,) = roles.values()
    assert role["rules"] == [*rules(RULES), *rules(RULES_OF_TESTS), may_bind(kind, drivers, name)]
    roles = roles_of(render(*only, "--set=mirrorTests.enabled=false"))
    del roles[drivers]
    (role,) = roles.values()
    assert role["rules"] == [*rules(RULES), may_bind(kind, drivers)]


@pytest.mark.parametrize(
    ("arguments", "namespace"),
    [
        ([], "kafka"),
        (["--set=scope=Namespace"], "kafka"),
        (["--set=scope=Namespace", "--set=watchNamespaces={shop,bank}"], "shop"),
    ],
)
def test_operator_writes_one_lease_in_one_namespace(arguments: list[str], namespace: str) -> None:
    objects = render(*arguments)
    (role,) = (one for one in of_kind(objects, "Role") if "-lease" in one["metadata"]["name"])
    assert role["metadata"]["namespace"] == namespace
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert role["rules"] == [
        leases | {"resourceNames": ["headrace-operator"], "verbs": ["get", "update"]},
        leases | {"verbs": ["create"]},
    ]
    others = [one["rules"] for one in roles_of(objects).values()]
    rest = [rule for one in others if one != rules(RULES_OF_DRIVERS) for rule in one]
    verbs = [rule["verbs"] for rule in rest if "leases" in rule["resources"]]
    assert all(one == ["list", "watch"] for one in verbs)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"--refuse-tests-in=kafka"}),
        (["--set=scope=Namespace"], set()),
        (
            ["--set=scope=Namespace", "--set=watchNamespaces[0]=shop"],
            {"--refuse-tests-in=kafka"},
        ),
        (
            ["--set=scope=Namespace", "--set=mirrorTests.enabled=false"],
            {"--no-mirror-tests"},
        ),
        (
            ["--set=scope=Namespace", "--set=spark.allowCustomImage=false"],
            {"--no-custom-spark-image"},
        ),
    ],
)
def test_which_mirror_tests_are_carried_out(arguments: list[str], expected: set[str]) -> None:
    (container,) = operator(*arguments)["containers"]
    words = ("--no-", "--refuse-")
    assert {one for one in container["args"] if one.startswith(words)} == expected


def test_users_get_rights_where_the_release_is_cluster_wide() -> None:
    def added(*arguments: str) -> dict[str, Any]:
        return {
            label.removeprefix("rbac.authorization.k8s.io/aggregate-to-"): role["rules"]
            for role in of_kind(render(*arguments), "ClusterRole")
            for label in role["metadata"]["labels"]
            if label.startswith("rbac.")
        }

    both = {role: rules(f"{role}-rules.yaml") for role in ("view", "edit")}
    assert added() == both
    assert added("--set=rbac.aggregate=false") == {}
    assert added("--set=scope=Namespace") == {}
    assert added("--set=scope=Namespace", "--set=rbac.aggregate=true") == both


@pytest.mark.parametrize(
    ("arguments", "kind", "name", "namespace"),
    [
        ([], "ClusterRole", "headrace-operator-chaos.kafka", None),
        (["--set=scope=Namespace"], "Role", "headrace-operator-chaos", "kafka"),
        (
            ["--set=scope=Namespace", "--set=watchNamespaces[0]=shop"],
            "Role",
            "headrace-operator-chaos.kafka",
            "shop",
        ),
    ],
)
def test_with_chaos_the_operator_may_bind_one_role_more_and_no_other(
    arguments: list[str], kind: str, name: str, namespace: str | None
) -> None:
    objects = render("--set=chaos.enabled=true", "--set=rbac.aggregate=false", *arguments)
    roles = roles_of(objects)
    chaos = roles.pop(name)
    assert (chaos["kind"], chaos["metadata"].get("namespace")) == (kind, namespace)
    assert chaos["rules"] == rules(RULES_OF_CHAOS)
    executors = name.replace("-chaos", "-executors")
    assert roles.pop(executors)["rules"] == rules(RULES_OF_EXECUTORS)
    drivers = name.replace("-chaos", "-drivers")
    assert roles.pop(drivers)["rules"] == rules(RULES_OF_DRIVERS)
    (operators,) = roles.values()
    assert operators["rules"] == [
        *rules(RULES),
        *rules(RULES_OF_TESTS),
        may_bind(kind, drivers, executors, name),
        {
            "apiGroups": ["headrace.dev"],
            "resources": ["mirrortests", "replicationflows"],
            "verbs": ["patch"],
        },
    ]
    bindings = of_kind(objects, "RoleBinding", "ClusterRoleBinding")
    bound = {one["roleRef"]["name"] for one in bindings}
    lease = name.replace("-chaos", "-lease") if namespace else "headrace-operator-lease.kafka"
    assert bound - {lease} == roles.keys(), "nobody is bound to it before there is a test"
    (container,) = operator("--set=chaos.enabled=true", *arguments)["containers"]
    assert {f"--chaos-role={name}", f"--executor-role={executors}"} <= set(container["args"])


def test_with_rehearsals_the_operator_may_bind_one_role_more_and_has_no_other_right() -> None:
    arguments = ("--set=rehearsal.enabled=true", "--set=rbac.aggregate=false")
    roles = roles_of(render(*arguments))
    name, drivers, executors = (
        f"headrace-operator-{role}.kafka" for role in ("rehearsal", "drivers", "executors")
    )
    assert roles.pop(name)["rules"] == rules(RULES_OF_REHEARSALS)
    del roles[drivers], roles[executors]
    (operators,) = roles.values()
    own = [*rules(RULES), *rules(RULES_OF_TESTS)]
    assert operators["rules"] == [*own, may_bind("ClusterRole", drivers, executors, name)]
    (container,) = operator(*arguments)["containers"]
    assert f"--rehearsal-role={name}" in container["args"]


def test_no_rights_are_given_where_somebody_else_gives_them() -> None:
    arguments = (
        "--set=rbac.create=false",
        "--set=rbac.aggregate=false",
        "--set=chaos.enabled=true",
        "--set=rehearsal.enabled=true",
    )
    kinds = {object["kind"] for object in render(*arguments)}
    assert kinds.isdisjoint({*ROLES, "RoleBinding", "ClusterRoleBinding"})


@pytest.mark.parametrize("keep", [True, False])
def test_the_definitions_are_those_of_kubectl_apply(keep: bool) -> None:
    rendered = {
        definition["metadata"]["name"]: definition
        for definition in of_kind(render(f"--set=crds.keep={str(keep).lower()}"), CRD)
    }
    files = [yaml.safe_load(file.read_text()) for file in (ROOT / "crds").glob("*.yaml")]
    assert len(files) == len(rendered) == 3
    for wanted in files:
        definition = rendered[wanted["metadata"]["name"]]
        kept = definition["metadata"].get("annotations", {}).get("helm.sh/resource-policy")
        assert kept == ("keep" if keep else None)
        assert wanted["metadata"]["labels"].items() <= definition["metadata"]["labels"].items()
        assert definition["spec"] == wanted["spec"]


def test_a_release_that_brings_no_definitions() -> None:
    assert of_kind(render("--set=crds.enabled=false"), CRD) == []


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("values", "image", "driver", "spark"),
    [
        ({}, "headrace:0.1.0", "headrace:0.1.0", "headrace-spark:0.1.0"),
        ({"image.tag": "2"}, "headrace:2", "headrace:2", "headrace-spark:2"),
        (
            {"image.repository": "r.example:5000/h", "image.digest": DIGEST},
            f"r.example:5000/h@{DIGEST}",
            f"r.example:5000/h@{DIGEST}",
            "r.example:5000/h-spark:0.1.0",
        ),
        ({"driver.image": "d:1", "spark.image": "s:1"}, "headrace:0.1.0", "d:1", "s:1"),
        (
            {"global.imageRegistry": "r.example/team", "image.tag": "2"},
            "r.example/team/headrace:2",
            "r.example/team/headrace:2",
            "r.example/team/headrace-spark:2",
        ),
        (
            {"global.imageRegistry": "r.example", "image.registry": "own.example:5000"},
            "own.example:5000/headrace:0.1.0",
            "own.example:5000/headrace:0.1.0",
            "own.example:5000/headrace-spark:0.1.0",
        ),
    ],
)
def test_images(values: dict[str, str], image: str, driver: str, spark: str) -> None:
    (container,) = operator(*(f"--set-string={k}={v}" for k, v in values.items()))["containers"]
    assert container["image"] == image
    assert {f"--driver-image={driver}", f"--spark-image={spark}"} <= set(container["args"])


def test_required_security_settings_stay_beside_additional_ones() -> None:
    pod = operator("--set=podSecurityContext.fsGroup=7", "--set=securityContext.runAsUser=8")
    required = operator()
    (container,), (plain,) = pod["containers"], required["containers"]
    assert pod["securityContext"] == {"fsGroup": 7, **required["securityContext"]}
    assert container["securityContext"] == {"runAsUser": 8, **plain["securityContext"]}


@pytest.mark.parametrize("case", CASES)
def test_the_operator_understands_its_command_line(case: str) -> None:
    (container,) = operator(values_of(case))["containers"]
    assert container["command"] == ["headrace", "operator"]
    given = command.make_context("operator", list(container["args"])).params
    assert bool(given["namespaces"]) is not given["all_namespaces"]
    assert given["port"] == container["ports"][0]["containerPort"]
    for variable in (given["identity"], given["ip"]):
        assert variable.strip("$()") in {one["name"] for one in container["env"]}


def names_of(release: str, namespace: str, *arguments: str) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of all objects of a release but the definitions, and its Lease."""
    objects = render("--set=crds.enabled=false", *arguments, release=release, namespace=namespace)
    named = {
        (object["kind"], object["metadata"].get("namespace", ""), object["metadata"]["name"])
        for object in objects
    }
    (deployment,) = of_kind(objects, "Deployment")
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    given = dict(arg.removeprefix("--").partition("=")[::2] for arg in args)
    return named | {("Lease", given["lease-namespace"], given["lease"])}


def test_releases_of_one_cluster_share_no_name() -> None:
    watch_c = ("--set=scope=Namespace", "--set=watchNamespaces[0]=c")
    everything = values_of("everything")
    releases = [
        names_of(
            "headrace", "a", everything, "--set=fullnameOverride=", "--set=serviceAccount.name="
        ),
        names_of("headrace", "b"),
        names_of("b-headrace", "a"),
        names_of("headrace-b", "a"),
        names_of("b", "b-a", "--set=scope=Namespace"),
        names_of("b-b", "a", *watch_c),
        names_of("b-b", "b", "--set=scope=Namespace"),
        names_of("x" * 53, "a"),
        names_of("x" * 52, "a"),
    ]
    shared = [name for name, count in Counter(chain(*releases)).items() if count > 1]
    assert shared == []


def test_with_one_namespace_nothing_is_cluster_wide() -> None:
    assert {namespace for _, namespace, _ in names_of("headrace", "a", values_of("namespace"))} == {
        "a",
        "shop",
    }


def test_several_namespaces_have_the_rights_and_are_watched() -> None:
    objects = render(
        "--set=scope=Namespace",
        "--set=watchNamespaces={shop,bank}",
        "--set=chaos.enabled=true",
        "--set=podMonitor.enabled=true",
        "--set=prometheusRule.enabled=true",
        "--set=selector=headrace.dev/channel=canary",
        "--set=lease.create=true",
    )
    for kind in ("Role", "RoleBinding"):
        spaces = [one["metadata"]["namespace"] for one in of_kind(objects, kind)]
        assert set(spaces) == {"shop", "bank"}
        names = [
            (one["metadata"]["namespace"], one["metadata"]["name"])
            for one in of_kind(objects, kind)
        ]
        assert len(names) == len(set(names))
    assert not of_kind(objects, "ClusterRole")
    (lease,) = of_kind(objects, "Lease")
    assert lease["metadata"]["namespace"] == "shop"
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    args = container["args"]
    assert args[:3] == [
        "--namespace=shop",
        "--namespace=bank",
        "--selector=headrace.dev/channel=canary",
    ]
    assert "--lease-namespace=shop" in args
    assert "--max-concurrent-rollouts=5" in args
    _, *monitors = of_kind(objects, "PodMonitor")
    assert len(monitors) == 2, "of drivers, of mirror tests"
    for monitor in monitors:
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["shop", "bank"]}
    (rule,) = of_kind(objects, "PrometheusRule")
    assert 'namespace=~"shop|bank"' in str(rule["spec"])


def test_defaults_of_drivers_arrive_as_they_are_written() -> None:
    (container,) = operator(
        "--set=driver.resources.requests.cpu=200m",
        "--set=driver.pullPolicy=Always",
        "--set=driver.podTemplate.nodeSelector.disk=fast",
        '--set-json=driver.env=[{"name": "TZ", "value": "UTC"}]',
        '--set-json=driver.podTemplate.tolerations=[{"key": "a", "operator": "Exists"}]',
    )["containers"]
    given = command.make_context("operator", list(container["args"])).params["driver_defaults"]
    defaults = DriverDefaults.model_validate_json(given)
    assert defaults.resources.requests == {"cpu": "200m", "memory": "256Mi"}
    assert defaults.image_pull_policy == "Always"
    assert defaults.pod_template.node_selector == {"disk": "fast"}
    assert [one.key for one in defaults.pod_template.tolerations] == ["a"]
    assert [(one.name, one.value) for one in defaults.env] == [("TZ", "UTC")]


def test_defaults_of_mirror_tests_arrive_as_they_are_written() -> None:
    def given(*arguments: str) -> SparkDefaults:
        (container,) = operator(*arguments)["containers"]
        text = command.make_context("operator", list(container["args"])).params["spark_defaults"]
        return SparkDefaults.model_validate_json(text)

    assert given() == SparkDefaults()
    assert (
        given("--set=mirrorTests.enabled=false", "--set=spark.driver.resources.requests.cpu=1")
        == SparkDefaults()
    )
    defaults = given(
        "--set=spark.pullPolicy=Always",
        "--set=spark.driver.resources.limits.cpu=2",
        "--set-string=spark.executor.resources.requests.cpu=0.5",
        "--set=spark.podTemplate.priorityClassName=low",
    )
    assert defaults.image_pull_policy == "Always"
    assert defaults.driver.resources.limits.cpu == "2"
    assert defaults.executor.resources.requests.cpu == "0.5"
    assert defaults.pod_template.priority_class_name == "low"


def test_own_pull_secrets_of_drivers_and_tests_override_the_global_ones() -> None:
    (container,) = operator(
        "--set=global.imagePullSecrets[0].name=all",
        "--set=driver.podTemplate.imagePullSecrets[0].name=own",
    )["containers"]
    given = command.make_context("operator", list(container["args"])).params
    drivers = DriverDefaults.model_validate_json(given["driver_defaults"])
    spark = SparkDefaults.model_validate_json(given["spark_defaults"])
    assert [one.name for one in drivers.pod_template.image_pull_secrets] == ["own"]
    assert [one.name for one in spark.pod_template.image_pull_secrets] == ["all"]


def test_the_schema_knows_what_drivers_and_mirror_tests_may_have() -> None:
    """Compare the schema with a flow and a test: the operator understands all accepted fields."""

    def fields(model: type[Model]) -> set[str]:
        return {str(field.alias) for field in model.model_fields.values()}

    schema = json.loads((CHART / "values.schema.json").read_text())
    known = {name: part.get("properties") for name, part in schema["definitions"].items()}
    assert known["podTemplate"].keys() == fields(PodTemplate)
    assert known["size"].keys() == fields(SparkPod)
    assert known["size"]["resources"]["properties"].keys() == fields(SparkResources)
    assert known["amounts"].keys() == fields(SparkAmounts)
    driver = schema["properties"]["driver"]["properties"]
    assert driver["resources"]["properties"].keys() == fields(Resources)
    assert driver["env"]["items"]["properties"].keys() == fields(EnvVar)


def test_the_operator_makes_its_lease_unless_the_release_has_it() -> None:
    """Argo CD excludes the kind, and warns of each in a chart."""
    with_it, without = render("--set=lease.create=true"), render()
    (lease,) = of_kind(with_it, "Lease")
    assert [one for one in with_it if one != lease] == without


def test_the_chart_names_who_maintains_it() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["maintainers"] == [{"name": "headrace contributors"}]


def test_more_arguments_and_volumes() -> None:
    pod = operator(
        "--set=extraArgs={--log-format=json}",
        '--set-json=extraVolumes=[{"name": "ca", "configMap": {"name": "ca"}}]',
        '--set-json=extraVolumeMounts=[{"name": "ca", "mountPath": "/etc/ca"}]',
    )
    (container,) = pod["containers"]
    assert container["args"][-1] == "--log-format=json"
    assert pod["volumes"][-1] == {"name": "ca", "configMap": {"name": "ca"}}
    assert container["volumeMounts"][-1] == {"name": "ca", "mountPath": "/etc/ca"}


def test_a_name_of_ones_own() -> None:
    def name(*arguments: str) -> Any:
        return of_kind(render(*arguments), "Deployment")[0]["metadata"]["name"]

    assert name("--set=nameOverride=mirror") == "headrace-mirror-operator"
    assert name("--set=nameOverride=mirror", "--set=fullnameOverride=a") == "a-operator"


def test_the_condition_of_an_umbrella_chart_is_tolerated() -> None:
    assert render("--set=enabled=true") == render()


def test_how_it_is_scraped() -> None:
    for one in of_kind(
        render(
            "--set=podMonitor.enabled=true",
            "--set=podMonitor.scrapeTimeout=5s",
            "--set=podMonitor.relabelings[0].action=labeldrop",
        ),
        "PodMonitor",
    ):
        (endpoint,) = one["spec"]["podMetricsEndpoints"]
        assert endpoint["scrapeTimeout"] == "5s"
        assert endpoint["relabelings"] == [{"action": "labeldrop"}]


def test_helm_test_asks_as_the_operator() -> None:
    objects = render(values_of("everything"))
    (pod,) = of_kind(objects, "Pod")
    (deployment,) = of_kind(objects, "Deployment")
    template = deployment["spec"]["template"]
    (container,), (ours,) = pod["spec"]["containers"], template["spec"]["containers"]
    assert pod["spec"]["serviceAccountName"] == template["spec"]["serviceAccountName"]
    assert container["image"] == ours["image"]
    assert container["args"] == ours["args"]
    assert container["command"] == [*ours["command"], "--check"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= pod["metadata"]["labels"].items(), "no operator"


def test_artifact_hub_lists_the_definitions() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    listed = yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    definitions = of_kind(render(), CRD)
    assert {(one["name"], one["kind"], one["version"]) for one in listed} == {
        (
            one["metadata"]["name"],
            one["spec"]["names"]["kind"],
            one["spec"]["versions"][0]["name"],
        )
        for one in definitions
    }


def test_names_are_as_long_as_a_pods_host_may_be() -> None:
    """Limit all names except those of roles and bindings, which may have 253 characters."""
    names = names_of("x" * 53, "a", "--set=scope=Namespace")
    limited = [name for kind, _, name in names if kind not in {*ROLES, "RoleBinding"}]
    assert max(map(len, limited)) <= 63


NAMED = {"name", "namespace", "app.kubernetes.io/instance", "priorityClassName"}


def names_in(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        yield from (value for key, value in part.items() if key in NAMED)
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            yield from names_in(inner)


def test_names_may_look_like_numbers() -> None:
    texts = "watchNamespaces[0]=34,priorityClassName=100,serviceAccount.name=7,fullnameOverride="
    numbers = ("--set=scope=Namespace", f"--set-string={texts}")
    objects = render(values_of("everything"), *numbers, release="1", namespace="12")
    found = set(names_in([object for object in objects if object["kind"] != CRD]))
    assert {"1", "12", "34", "100", "7"} <= found
    assert [name for name in found if not isinstance(name, str)] == []


def test_by_default_the_lease_is_the_operators_own() -> None:
    (container,) = operator()["containers"]
    assert f"--lease={OPERATOR_LEASE}" in container["args"]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 1),
        (["--set=scope=Namespace"], 0),
        (["--set=scope=Namespace", "--set=flowSchema.enabled=true"], 1),
        (["--set=flowSchema.enabled=false"], 0),
    ],
)
def test_a_flow_schema_is_there_where_the_release_is_cluster_wide(
    arguments: list[str], count: int
) -> None:
    assert len(of_kind(render(*arguments), "FlowSchema")) == count


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 3),
        (["--set=scope=Namespace"], 0),
        (["--set=scope=Namespace", "--set=admissionPolicies.enabled=true"], 3),
        (["--set=admissionPolicies.enabled=false"], 0),
    ],
)
def test_admission_policies_exist_where_the_release_is_cluster_wide(
    arguments: list[str], count: int
) -> None:
    objects = render(*arguments)
    assert len(of_kind(objects, "ValidatingAdmissionPolicy")) == count
    bindings = of_kind(objects, "ValidatingAdmissionPolicyBinding")
    assert len(bindings) == count
    scope = "--set=scope=Namespace" in arguments
    assert all(("matchResources" in one["spec"]) is scope for one in bindings)


def test_dashboards_are_the_files() -> None:
    maps = of_kind(render("--set=dashboards.enabled=true"), "ConfigMap")
    files = {file.name: file.read_text() for file in (CHART / "files" / "dashboards").iterdir()}
    data = {name.removeprefix("kafka-"): text for one in maps for name, text in one["data"].items()}
    assert data == files
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps)


def test_no_template_is_left_out() -> None:
    """Check that each template that can make objects makes one in some case."""
    rendered = {
        name
        for case in CASES
        for name in re.findall(
            r"^# Source: headrace/(\S+)$",
            helm(
                *("template", "headrace", str(CHART), f"--kube-version={KUBERNETES}", REQUIRED),
                values_of(case),
            ),
            re.MULTILINE,
        )
    }
    makes_none = {"templates/_helpers.tpl", "templates/checks.yaml", "templates/NOTES.txt"}
    files = {f"templates/{file.name}" for file in (CHART / "templates").iterdir()}
    assert files - rendered == makes_none


def test_pods_of_any_namespace_speak_for_their_own_only() -> None:
    """Allow for users who create pods with the labels of drivers and of mirror tests."""
    monitors = {
        one["metadata"]["name"]: one["spec"]
        for one in render("--set=podMonitor.enabled=true")
        if one["kind"] == "PodMonitor"
    }
    for name in ("headrace-drivers", "headrace-mirror-tests"):
        (pods,) = monitors[name]["podMetricsEndpoints"]
        assert monitors[name]["namespaceSelector"] == {"any": True}
        assert not pods["honorLabels"]
    (operator,) = monitors["headrace-operator"]["podMetricsEndpoints"]
    assert operator["honorLabels"], "its series are of the flows' namespaces"
    assert "namespaceSelector" not in monitors["headrace-operator"]
