"""Manifests of ``v1alpha1`` become manifests of the current version with the same meaning."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.main import main
from headrace.convert import read, write
from headrace.errors import InvalidSpec

CLUSTERS = """\
  source: {alias: east, bootstrapServers: "east:9092"}
  target: {alias: west, bootstrapServers: "west:9092"}
  topics: {include: [orders]}
"""
HEAD = """\
apiVersion: headrace.dev/v1alpha1
kind: ReplicationFlow
metadata: {name: orders}
spec:
"""
FLOW = HEAD + CLUSTERS
EXACTLY_ONCE = {"mode": "ExactlyOnce", "commitIntervalMs": 500}
DEAD_LETTERS = {"action": "DeadLetter", "deadLetterTopic": "dead"}
MOMENT = "2026-01-31T12:00:00Z"


def converted(text: str) -> list[dict[str, Any]]:
    """Return the documents that the text is converted to, as they are written and read again."""
    return list(yaml.safe_load_all(write(read(Path("old.yaml"), text))))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("delivery: ExactlyOnce", {"delivery": {"mode": "ExactlyOnce"}}),
        ("delivery: ExactlyOnce\n  commitIntervalMs: 500", {"delivery": EXACTLY_ONCE}),
        ("commitIntervalMs: 500\n  delivery: ExactlyOnce", {"delivery": EXACTLY_ONCE}),
        (
            "offsets: Preserved\n  holes: Copies",
            {"offsets": {"mode": "Preserved", "holes": "Copies"}},
        ),
        ("onRecordError: Skip", {"onRecordError": {"action": "Skip"}}),
        ("onRecordError: DeadLetter\n  deadLetterTopic: dead", {"onRecordError": DEAD_LETTERS}),
        ("startFrom: Latest", {"startFrom": {"mode": "Latest"}}),
        (
            f'startFrom: Timestamp\n  startTimestamp: "{MOMENT}"',
            {"startFrom": {"mode": "Timestamp", "timestamp": MOMENT}},
        ),
        ("policy: {type: Identity}", {"replicationPolicy": {"type": "Identity"}}),
        ("topicConfigs: {sync: false}", {"topicConfigs": {"enabled": False}}),
        (
            "acls: {sync: true, intervalSeconds: 5}",
            {"acls": {"enabled": True, "intervalSeconds": 5}},
        ),
        ("checkpoints: {applyToGroups: true}", {"checkpoints": {"applyToGroups": True}}),
    ],
)
def test_fields_move_below_their_mode(old: str, new: dict[str, Any]) -> None:
    (document,) = converted(f"{FLOW}  {old}\n")
    assert document["apiVersion"] == "headrace.dev/v1beta1"
    assert document["spec"] == yaml.safe_load(f"spec:\n{CLUSTERS}")["spec"] | new


@pytest.mark.parametrize("mover", ["Auto", "Batch", "Record"])
def test_mover_is_dropped_with_a_note(mover: str) -> None:
    (old,) = read(Path("old.yaml"), f"{FLOW}  mover: {mover}\n")
    (document,) = yaml.safe_load_all(write([old]))
    assert document["spec"] == yaml.safe_load(f"spec:\n{CLUSTERS}")["spec"]
    assert [(note.line, note.setting) for note in old.notes] == [(8, f"spec.mover: {mover}")]
    assert "headrace has one mover now" in old.notes[0].sentence


def test_a_list_of_kubectl_loses_what_the_api_server_wrote() -> None:
    text = f"""
apiVersion: v1
kind: List
items:
- apiVersion: headrace.dev/v1alpha1
  kind: ReplicationFlow
  metadata:
    name: orders
    namespace: shop
    uid: 0f9b2c1e
    resourceVersion: "7"
    generation: 2
    creationTimestamp: "{MOMENT}"
    labels: {{team: shop}}
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: "{{}}"
      headrace.dev/reset: orders@{MOMENT}
  spec:
    source: {{alias: east, bootstrapServers: "east:9092"}}
    target: {{alias: west, bootstrapServers: "west:9092"}}
    topics: {{include: [orders]}}
    startFrom: Latest
  status: {{observedGeneration: 2}}
- apiVersion: headrace.dev/v1alpha1
  kind: ReplicationTask
  metadata: {{name: orders-source-task-0}}
  spec: {{flowName: orders, type: SourceTask}}
- apiVersion: headrace.dev/v1alpha1
  kind: MirrorTest
  metadata: {{name: nightly}}
  spec: {{flowName: orders}}
"""
    flow, test = converted(text)
    assert flow["metadata"] == {
        "name": "orders",
        "namespace": "shop",
        "labels": {"team": "shop"},
        "annotations": {"headrace.dev/reset": f"orders@{MOMENT}"},
    }
    assert "status" not in flow
    # Latest counts from the creation of the flow, and the new object is created later.
    assert flow["spec"]["startFrom"] == {"mode": "Timestamp", "timestamp": MOMENT}
    assert (test["kind"], test["spec"]) == ("MirrorTest", {"flowName": "orders"})


def test_secrets_and_current_manifests_stay() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {password: x}\n"
    (current,) = converted(FLOW)
    documents = converted(f"{secret}---\n{yaml.safe_dump(current)}")
    assert documents == [yaml.safe_load(secret), current]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "old.yaml:1: is not YAML: "),
        ("", "old.yaml: holds no document"),
        ("a: 1\n", "old.yaml:1: has no kind; `headrace convert` reads "),
        (
            "apiVersion: v1\nkind: Pod\n",
            'old.yaml:1: apiVersion: got "v1", kind "Pod", is not converted; `headrace convert`',
        ),
        (
            FLOW + "  colour: red\n",
            "old.yaml:1: ReplicationFlow orders would be refused: spec.colour: unknown field",
        ),
    ],
)
def test_other_input_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        read(Path("old.yaml"), text)
    assert str(refused.value).startswith(sentence)


def test_the_command_prints_a_manifest_that_validate_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(FLOW + "  policy: {type: Identity}\n  delivery: ExactlyOnce\n")
    assert main(["validate", str(old)]) == 3
    assert f"run `headrace convert {old}`" in capsys.readouterr().out
    assert main(["convert", str(old)]) == 0
    new.write_text(capsys.readouterr().out)
    assert main(["validate", str(new)]) == 0


def test_the_command_writes_nothing_for_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.yaml"
    old.write_text(f"{FLOW}---\n{FLOW}  colour: red\n")
    assert main(["convert", str(old)]) == 3
    assert main(["convert", str(tmp_path / "absent.yaml")]) == 3
    out, error = capsys.readouterr()
    assert out == ""
    assert f"{old}:9: ReplicationFlow orders would be refused: spec.colour" in error
    assert "absent.yaml: cannot be read: No such file or directory" in error
