"""The API server takes what ``headrace validate`` takes, and refuses what that refuses."""

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from cluster.api_server import ApiServer
from cluster.rest import ApiError
from hypothesis import HealthCheck, given, settings
from support.manifests import (
    EAST,
    SERVER_DEFAULTS,
    WEST,
    Document,
    flow,
    flows,
    mirror_test,
    mirror_test_of_another,
    mirror_tests,
    path_of,
    task,
)
from support.wrong_manifests import (
    AT_9_S,
    BAD,
    HALF,
    OAUTH,
    OF_THE_OPERATOR,
    POD_TEMPLATES,
    Bad,
    source,
)

from headrace.api import InvalidManifest, load

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
Create = Callable[[Document], Document]


@pytest.fixture
def try_to_create(api_server: ApiServer) -> Create:
    """Create as ``kubectl apply --dry-run=server --validate=strict``, and return the result."""

    def create(document: Document) -> Document:
        where = path_of(document["kind"], "default")
        return api_server.rest.post(f"{where}?dryRun=All&fieldValidation=Strict", document)

    return create


@pytest.fixture
def say(tmp_path: Path) -> Callable[[Document], list[str]]:
    """Return the mistakes that ``headrace validate`` finds, without file and line."""

    def say(document: Document) -> list[str]:
        file = tmp_path / "manifest.yaml"
        file.write_text(yaml.safe_dump(document))
        try:
            load([file])
        except InvalidManifest as wrong:
            return [str(mistake).partition(" ")[2] for mistake in wrong.mistakes]
        return []

    return say


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.field}: {bad.sentence}"[:80])
def test_a_bad_manifest_is_refused_in_both_places(
    try_to_create: Create, say: Callable[[Document], list[str]], bad: Bad
) -> None:
    (message,) = say(bad.document)
    field, _, why = message.partition(": ")
    assert field.startswith(bad.field)
    assert why.endswith(bad.ours or bad.sentence)
    with pytest.raises(ApiError) as refused:
        try_to_create(bad.document)
    assert bad.field in str(refused.value)
    assert bad.sentence in str(refused.value)
    assert refused.value.status == 422


@pytest.mark.parametrize("document", OF_THE_OPERATOR)
def test_what_cel_cannot_tell_is_the_operators_to_refuse(
    try_to_create: Create, say: Callable[[Document], list[str]], document: Document
) -> None:
    assert say(document)
    try_to_create(document)


@pytest.mark.parametrize(
    "regex",
    [
        r"a(?!b).*",
        r"(a)\1",
        "a++",
        r"\d{1,1001}",
        r"orders\.v\d+",
        "[a-z-]+",
        "[[:x:]]",
        "[[]",
    ],
)
def test_python_decides_which_regular_expressions_there_are(
    try_to_create: Create, say: Callable[[Document], list[str]], regex: str
) -> None:
    """Accept an expression that RE2, which the API server has, reads differently."""
    document = flow(topics={"include": [regex]})
    assert say(document) == []
    try_to_create(document)


def test_what_asks_for_nothing_may_be_written(try_to_create: Create) -> None:
    try_to_create(flow(batchVerification="Disabled", checkpoints={"applyToGroups": True}))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (flow(tasks={"maximum": 3}), "spec.tasks.maximum"),
        (
            flow(drivers={"volumes": [{"name": "v", "secret": {"secretName": "a", "name": "a"}}]}),
            "spec.drivers.volumes[0].secret.name",
        ),
        *(
            (make(template), f"{at}.podTemplate.{field}")
            for make, at in POD_TEMPLATES
            for template, field in (
                ({"affinity": {"nodeAfinity": {}}}, "affinity.nodeAfinity"),
                (
                    {"affinity": {"podAntiAffinity": {"required": []}}},
                    "affinity.podAntiAffinity.required",
                ),
                ({"dnsConfig": {"nameserver": ["10.0.0.1"]}}, "dnsConfig.nameserver"),
            )
        ),
    ],
)
def test_an_unknown_field_is_refused_by_its_name(
    try_to_create: Create, say: Callable[[Document], list[str]], document: Document, field: str
) -> None:
    (message,) = say(document)
    assert message.startswith(f"{field}: unknown field")
    with pytest.raises(ApiError, match=re.escape(f'unknown field "{field}"')):
        try_to_create(document)


GOOD = [
    source(
        authentication={
            "type": "OAuthBearer",
            "oauth": OAUTH | {"scope": "a b", "extensions": {"logicalCluster": "lkc-1"}},
        }
    ),
    flow(source=EAST | {"bootstrapServers": "[::1]:9092, a_b.c-d:65535"}),
    flow(source=EAST | {"tls": {}}, target=WEST | {"replicationFactor": 3, "tls": {}}),
    flow(source=EAST | {"config": {"fetch.min.bytes": 5, "client.id": "x"}}),
    flow(onRecordError={"action": "DeadLetter", "deadLetterTopic": "..."}),
    flow(tasks={"movementBudget": 0}, pausedPartitions=[{"topic": "a", "partitions": "0-3, 7"}]),
    flow(state="Stopped", pausedPartitions=[{"topic": "orders"}]),
    flow(state=None, replicationPolicy={"type": "Identity", "separator": None}),
    flow(startFrom={"mode": "Timestamp", "timestamp": "2026-01-31T12:00:00.25+01:00"}),
    flow(
        drivers={
            "replicas": 0,
            "resources": {"requests": {"cpu": 2, "memory": "1.5Gi"}, "limits": {"cpu": "2500m"}},
            "podTemplate": {
                "metadata": {"labels": {"team": "a"}, "annotations": {"a/b": "c"}},
                "nodeSelector": {"disk": "fast"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"anything": "at all"}
                    },
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"anything": "at all"}]
                    },
                },
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["10.0.0.1"],
                    "searches": ["kafka.svc"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                },
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ],
                "priorityClassName": "high",
                "imagePullSecrets": [{"name": "registry"}],
            },
        }
    ),
    flow(
        drivers={
            "volumes": [
                {"name": "a", "secret": {"secretName": "a", "optional": True, "defaultMode": 288}},
                {
                    "name": "b",
                    "configMap": {"name": "b", "items": [{"key": "k", "path": "f/k", "mode": 292}]},
                },
                {"name": "c", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
                {"name": "d", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "e", "emptyDir": {"sizeLimit": 1048576}},
                {"name": "f", "csi": {"driver": "a.b.c", "anything": ["at all"]}},
                {"name": "g", "projected": {"sources": [{"anything": "at all"}]}},
            ],
            "resources": {"requests": {"cpu": 0}, "limits": {"hugepages-2Mi": 0}},
        }
    ),
    flow(
        recordFilter={
            "headers": {"include": [{"name": "a"}], "exclude": [{"name": "a", "value": "b"}]}
        }
    ),
    *(
        flow(onRecordError={"action": "DeadLetter", "deadLetterTopic": topic}, **more)
        for topic, more in (
            ("orders", {}),
            ("__dead", {}),
            ("east.dead", {"topics": {"include": [".*"]}}),
            ("dead", {"replicationPolicy": {"type": "Identity"}, "topics": {"include": [".*"]}}),
            ("orders", {"replicationPolicy": {"type": "of-a-plug-in"}}),
        )
    ),
    mirror_test(schedule="0 22-23,0-2 * * sat-sun"),
    mirror_test(load={"windowSeconds": 600}, successfulTestsHistoryLimit=3),
    mirror_test(load={"durationSeconds": 0, "windowSeconds": 60}, failedTestsHistoryLimit=9),
    mirror_test(rehearsal={}, budgets={"rereadPerGroup": 3, "skipped": 0}),
    mirror_test(budgets={"rereadPerGroup": 0, "skipped": 0}),
    mirror_test(targetTopic="{source}.{topic}", chaos=[]),
    mirror_test(schedule="*/5 1-3 * JAN MON", suspend=True, ttlSecondsAfterFinished=60),
    mirror_test(chaos=[HALF, AT_9_S, HALF], budgets={"duplicated": None, "unequalOffsets": 0}),
    mirror_test(chaos=[HALF | {"action": "ScaleDrivers", "drivers": 3}, AT_9_S]),
    mirror_test_of_another(chaos=[HALF | {"action": "KillBroker", "cluster": "Target"}]),
    mirror_test_of_another(chaos=[HALF | {"action": "RunCommand", "command": ["kill", "-9", "1"]}]),
    mirror_test(audit={}, budgets={"alien": 5}, schedule="@daily"),
    mirror_test(audit={}, load={}, chaos=[]),
    mirror_test(audit={"startFrom": {"mode": "LastAudit"}, "recheck": "Full"}),
    mirror_test(audit={"recheck": "Sample"}, partitioning="Any"),
    mirror_test(audit={}, load={"partitions": 8}),
    mirror_test_of_another(
        audit={
            "topics": ["orders", "payments-.*"],
            "startFrom": {"mode": "Timestamp", "timestamp": "2026-01-31T12:00:00Z"},
            "examples": "Records",
            "schemas": {
                "url": "https://registry:8081/api",
                "trustedCertificates": [{"configMapName": "ca"}],
                "authentication": {
                    "type": "Basic",
                    "usernameFrom": {"secretName": "login"},
                    "password": {"secretName": "login"},
                },
                "topics": ["orders"],
                "parts": ["Key", "Value"],
            },
        },
        budgets={"undecodable": 3},
    ),
    mirror_test(load={"durationSeconds": 9, "names": ["a", "b"]}, chaos=[AT_9_S]),
    *(
        mirror_test_of_another(targetTopic=template)
        for template in ("{topic}", "{source}.{topic}", "copy-of-{topic}", "{topic}{topic}")
    ),
]


@pytest.mark.parametrize("document", GOOD)
def test_a_good_manifest_is_taken_in_both_places(
    try_to_create: Create, say: Callable[[Document], list[str]], document: Document
) -> None:
    assert say(document) == []
    try_to_create(document)


def test_a_task_of_a_thousand_topics_is_within_cels_budget(try_to_create: Create) -> None:
    partitions = [{"topic": f"{i:0249}", "partitions": "0-3,7"} for i in range(1000)]
    try_to_create(task(partitions=partitions))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_can_be_applied(api_server: ApiServer, example: Path) -> None:
    api_server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(example))


def filled_in(document: Document) -> Document:
    """Return the spec of a flow with the defaults that the API server writes."""
    spec: Document = deepcopy(document["spec"])
    for path, value in SERVER_DEFAULTS.items():
        *outer, last = path.split(".")
        at = spec
        for name in outer:
            at = at.setdefault(name, {})
        at.setdefault(last, value)
    return spec


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(flows() | mirror_tests())
def test_what_a_user_wrote_stays_as_it_is(try_to_create: Create, document: Document) -> None:
    spec = try_to_create(document)["spec"]
    is_flow = document["kind"] == "ReplicationFlow"
    assert spec == (filled_in(document) if is_flow else document["spec"])
