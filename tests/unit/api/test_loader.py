"""Objects of files, and the errors for wrong fields of any kind."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.manifests import Say

from headrace.api import load
from headrace.errors import InvalidSpec

HEAD = "apiVersion: headrace.dev/v1beta1\nkind: ReplicationFlow\nmetadata: {name: orders}\n"
CLUSTERS = """\
spec:
  source: {alias: east, bootstrapServers: east:9092}
  target: {alias: west, bootstrapServers: west:9092}
"""
FLOW = HEAD + CLUSTERS + "  topics: {include: [orders]}\n"
TEST = HEAD.replace("ReplicationFlow", "MirrorTest") + "spec: {flowName: orders}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: orders}\nstringData: {password: hidden}\n"


def test_objects_of_all_kinds(write: Callable[[str, str], Path]) -> None:
    manifest = load([write("all.yaml", f"{FLOW}---\n{TEST}---\n{SECRET}---\n")])
    assert [found.kind for found in manifest.objects] == ["ReplicationFlow", "MirrorTest", "Secret"]
    assert {found.metadata.name for found in manifest.objects} == {"orders"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: b", "1: kind: must be ReplicationFlow, MirrorTest, Secret or ConfigMap"),
        ("kind: 7", "1: kind: got 7, must be ReplicationFlow, MirrorTest, Secret or ConfigMap"),
        (
            "kind: MirorTest",
            '1: kind: got "MirorTest", must be ReplicationFlow, MirrorTest, Secret or ConfigMap; '
            "did you mean MirrorTest?",
        ),
        (
            "kind: Pod",
            '1: kind: got "Pod", must be ReplicationFlow, MirrorTest, Secret or ConfigMap',
        ),
        (
            "kind: ReplicationTask",
            '1: kind: got "ReplicationTask", is written by headrace itself; here it must be '
            "ReplicationFlow, MirrorTest, Secret or ConfigMap",
        ),
        ("\nkind: MirrorTest", "2: apiVersion: must be headrace.dev/v1beta1"),
        (
            FLOW.replace("v1beta1", "v1"),
            '1: apiVersion: got "headrace.dev/v1", must be headrace.dev/v1beta1',
        ),
        (SECRET.replace(": v1", ": v2"), '1: apiVersion: got "v2", must be v1'),
        (FLOW.replace("{name: orders}", "{}"), "3: metadata.name: is required"),
        (FLOW.replace("{name: orders}", ""), "3: metadata: is required"),
        (HEAD, "1: spec: is required"),
        (
            FLOW.replace("name: orders", "name: Orders"),
            '3: metadata.name: got "Orders", must be a name as Kubernetes takes it: '
            "a-z, 0-9, '-' and '.', a letter or digit at both ends",
        ),
        (HEAD + CLUSTERS, "4: spec.topics: is required"),
        (HEAD + "spec: orders", "4: spec: got text, must be a mapping, with a line for each key"),
        (
            FLOW + "  topic: x",
            "8: spec.topic: unknown field; did you mean spec.topics?",
        ),
        (
            FLOW + "  start_from: Latest",
            "8: spec.start_from: unknown field; did you mean spec.startFrom?",
        ),
        (
            FLOW + "  standbys: 1",
            "8: spec.standbys: unknown field; did you mean spec.tasks.standbys?",
        ),
        (
            FLOW + "  intervalSeconds: 9",
            "8: spec.intervalSeconds: unknown field; did you mean "
            "spec.topicConfigs.intervalSeconds or spec.acls.intervalSeconds or "
            "spec.checkpoints.intervalSeconds or spec.heartbeats.intervalSeconds or "
            "spec.sourceWatch.intervalSeconds?",
        ),
        (
            FLOW + "  acls: {delete: true}",
            "8: spec.acls.delete: unknown field; known here: enabled, intervalSeconds",
        ),
        (
            FLOW + "  acls: {delete: }",
            "8: spec.acls.delete: unknown field; known here: enabled, intervalSeconds",
        ),
        (FLOW + "  tasks: {max: 0}", "8: spec.tasks.max: got 0, must be at least 1"),
        (FLOW + "  tasks: {max: 1.5}", "8: spec.tasks.max: got 1.5, must be a whole number"),
        (FLOW + "  tasks: {max: '8'}", '8: spec.tasks.max: got "8", must be a whole number'),
        (FLOW + "  tasks: {max: yes}", "8: spec.tasks.max: got true, must be a whole number"),
        (FLOW + "  tasks: {max: [8]}", "8: spec.tasks.max: got a list, must be a whole number"),
        (
            FLOW + "  tasks: {movementBudget: 1.5}",
            "8: spec.tasks.movementBudget: got 1.5, must be at most 1",
        ),
        (
            FLOW + "  tasks: {movementBudget: some}",
            '8: spec.tasks.movementBudget: got "some", must be a number',
        ),
        (FLOW + "  acls: {enabled: 1}", "8: spec.acls.enabled: got 1, must be true or false"),
        (
            FLOW + "  groups: {include: {a: b}}",
            "8: spec.groups.include: got a mapping, must be a list",
        ),
        (
            FLOW + "  groups: {include: orders}",
            '8: spec.groups.include: got "orders", must be a list',
        ),
        (
            FLOW + "  groups: {include: [7]}",
            "8: spec.groups.include[0]: got 7, must be text "
            "(in quotes, where it looks like something else)",
        ),
        (
            FLOW + "  delivery: {mode: ExactlyOne}",
            '8: spec.delivery.mode: got "ExactlyOne", must be AtLeastOnce or ExactlyOnce; '
            "did you mean ExactlyOnce?",
        ),
        (
            FLOW + "  mover: Record",
            "8: spec.mover: unknown field; headrace has one mover now, which needs no setting: "
            "remove the field",
        ),
        (
            FLOW + "  replicationPolicy: {separator: ''}",
            '8: spec.replicationPolicy.separator: got "", must not be empty',
        ),
        (
            FLOW + f"  replicationPolicy: {{separator: {'.' * 17}}}",
            f'8: spec.replicationPolicy.separator: got "{"." * 17}", must have at most 16 '
            "characters",
        ),
        (
            FLOW.replace("[orders]", "[" + "a, " * 1000 + "b]"),
            "7: spec.topics.include: must have at most 1000 items",
        ),
        (
            FLOW + f"  state: {'a' * 100}",
            f'8: spec.state: got "{"a" * 75}...", must be Running, Paused or Stopped',
        ),
    ],
)
def test_the_sentence(say: Say, text: str, sentence: str) -> None:
    assert say(text) == [sentence]


def test_every_mistake_is_said(say: Say) -> None:
    text = FLOW.replace("[orders]", "['(', ')']") + "  tasks: {max: 0, min: 1}\n"
    assert [sentence.partition(": ")[2].partition(":")[0] for sentence in say(text)] == [
        "spec.topics.include[0]",
        "spec.topics.include[1]",
        "spec.tasks.max",
        "spec.tasks.min",
    ]


def test_two_objects_of_one_name(write: Callable[[str, str], Path]) -> None:
    first, second = write("a.yaml", FLOW), write("b.yaml", f"{TEST}---\n{FLOW}")
    with pytest.raises(InvalidSpec) as refused:
        load([first, second])
    assert str(refused.value) == (
        f'{second}:8: metadata.name: got "orders", '
        f"is the name of another ReplicationFlow, in {first}:3"
    )


def test_one_name_in_two_namespaces(write: Callable[[str, str], Path]) -> None:
    other = FLOW.replace("{name: orders}", "{name: orders, namespace: other}")
    assert len(load([write("a.yaml", f"{FLOW}---\n{other}")]).flows) == 2


def test_an_object_as_the_api_server_gives_it_back(write: Callable[[str, str], Path]) -> None:
    metadata = """\
metadata:
  name: orders
  namespace: default
  uid: 5e1a5a0e-6e9f-4e3b-8f5e-0d5b6a6f6f7e
  resourceVersion: "12"
  generation: 3
  creationTimestamp: "2026-01-31T12:00:00Z"
  finalizers: [headrace.dev/example]
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b, controller: true}]
  managedFields: [{manager: kubectl, operation: Apply, fieldsV1: {"f:spec": {}}}]
"""
    status = "status: {observedGeneration: 3, lag: {records: 0, seconds: 0}}\n"
    text = FLOW.replace("metadata: {name: orders}\n", metadata) + status
    flow = load([write("flow.yaml", text)]).flows[0]
    assert flow.metadata.generation == 3
    assert flow.status is not None
    assert flow.status.observed_generation == 3
