"""``headrace validate``: what it prints, and what it ends with."""

from pathlib import Path

import pytest

from headrace.cli.exits import Exit
from headrace.cli.main import main

FLOW = """\
apiVersion: headrace.dev/v1alpha1
kind: ReplicationFlow
metadata: {name: orders}
spec:
  source: {alias: east, bootstrapServers: east:9092}
  target: {alias: west, bootstrapServers: west:9092}
  topics: {include: [orders]}
"""


def test_mistakes_end_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW + "  tasks: {max: 0}\n  topic: orders\n")
    assert main(["validate", str(file)]) == Exit.USAGE.value == 3
    assert capsys.readouterr().out == (
        f"{file}:8: spec.tasks.max: got 0, must be at least 1\n"
        f"{file}:9: spec.topic: unknown field; did you mean spec.topics?\n"
    )


def test_valid_objects_end_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flow.yaml"
    built = "  checkpoints: {enabled: false}\n  topicConfigs: {sync: false}\n"
    file.write_text(
        f"{FLOW}{built}  delivery: ExactlyOnce\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: user}\n"
    )
    assert main(["validate", str(file)]) == Exit.OK.value == 0
    assert capsys.readouterr().out == (
        "ReplicationFlow orders: valid\n"
        "  refused by headrace run and verify: "
        "spec.delivery: ExactlyOnce is not built yet; use AtLeastOnce\n"
        "  warning: not built yet, left out: spec.batchVerification: Sampled\n"
        "Secret user: valid\n"
    )


def test_an_assignor_that_is_not_here_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW + "  tasks: {assignor: stikcy}\n")
    assert main(["validate", str(file)]) == Exit.USAGE
    assert capsys.readouterr().out.startswith(
        "ReplicationFlow orders: spec.tasks.assignor: there is no assignor stikcy; known here are "
        "cooperative, round-robin, sticky. A plug-in is a Python package"
    )
    assert main(["run", str(file)]) == Exit.USAGE
    assert (
        "flow orders: spec.tasks.assignor: there is no assignor stikcy; known here are cooperative,"
        in capsys.readouterr().err
    )


def test_a_reset_that_cannot_be_read_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.yaml"
    annotated = 'metadata: {name: orders, annotations: {headrace.dev/reset: "orders/3"}}'
    assert "metadata: {name: orders}" in FLOW
    file.write_text(FLOW.replace("metadata: {name: orders}", annotated))
    said = "the annotation headrace.dev/reset resets nothing: 'orders/3' is not of the form"
    assert main(["validate", str(file)]) == Exit.USAGE
    assert capsys.readouterr().out.startswith(f"ReplicationFlow orders: {said}")
    assert main(["run", str(file)]) == Exit.USAGE
    assert f"flow orders: {said}" in capsys.readouterr().err


def test_no_file_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == Exit.USAGE
    assert "Missing argument 'FILES...'" in capsys.readouterr().err
