"""Secrets: read as Kubernetes reads them, and never shown."""

from pathlib import Path

import pytest
from support.manifests import Say

from headrace.api import InvalidManifest, Secret, load

SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "user"}}
CANARY = "canary-9d2f"


def test_values_in_base64_and_in_plain() -> None:
    secret = Secret.model_validate(
        SECRET | {"data": {"a": "AAE=", "b": "eHk=\n"}, "stringData": {"b": "ö"}}
    )
    assert secret.values == {"a": b"\0\1", "b": "ö".encode()}


def test_values_are_not_shown() -> None:
    secret = Secret.model_validate(SECRET | {"stringData": {"password": CANARY}})
    assert CANARY not in f"{secret} {secret!r}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"data": {"a": CANARY}}, "data.a: must be base64 (stringData takes plain text)"),
        (
            {"stringData": {"a": 57721}},
            "stringData.a: must be text (in quotes, where it looks like something else)",
        ),
        (
            {"stringData": {"../a": CANARY}},
            "stringData[../a]: must be a Secret's key: letters, digits, '-', '_', '.'",
        ),
        ({"data": {"..": ""}}, "data[..]: must be a Secret's key: letters, digits, '-', '_', '.'"),
        ({"data": CANARY}, "data: must be a mapping, with a line for each key"),
        ({"stringData": [CANARY]}, "stringData: must be a mapping, with a line for each key"),
        (
            {"password": CANARY},
            "password: unknown field; known here: "
            "apiVersion, kind, metadata, type, immutable, data, stringData",
        ),
    ],
)
def test_the_sentence(say: Say, content: dict[str, object], sentence: str) -> None:
    assert [message.partition(" ")[2] for message in say(SECRET | content)] == [sentence]


@pytest.mark.parametrize(
    "cluster",
    [
        {"config": {"sasl.password": CANARY}},
        {"config": CANARY},
        {"authentication": CANARY},
        {"authentication": {"type": "Plain", "username": "a", "password": CANARY}},
        {"authentication": {"type": "Plain", "password": {"value": CANARY}}},
        {"password": CANARY},
    ],
)
def test_a_password_in_a_wrong_place_is_not_repeated(say: Say, cluster: dict[str, object]) -> None:
    source = {"alias": "east", "bootstrapServers": "a:1"} | cluster
    document = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": "a"},
        "spec": {"source": source, "target": {"alias": "west", "bootstrapServers": "b:1"}},
    }
    assert CANARY not in " ".join(say(document))


def test_nor_by_the_errors_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "secret.yaml"
    file.write_text(f"apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\ndata: {{a: {CANARY}}}\n")
    with pytest.raises(InvalidManifest) as refused:
        load([file])
    assert refused.value.__cause__ is None
    assert CANARY not in repr(refused.value)
