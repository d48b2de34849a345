"""``headrace check``, with brokers in memory."""

import json
from pathlib import Path

import pytest
import yaml
from support.source_tasks import COPY, FLOW, TOPIC, Scene

from headrace.cli.main import main
from headrace.kafka import Operation


@pytest.fixture
def scene(scene: Scene) -> Scene:
    for cluster, topic in ((scene.source, TOPIC), (scene.target, COPY)):
        cluster.configs[topic] = {}
    return scene


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "flow.yaml"
    file.write_text(yaml.safe_dump(FLOW.model_dump(by_alias=True, exclude_none=True, mode="json")))
    return file


def test_a_line_each_and_nothing_is_missing(
    scene: Scene, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Flow f: 0 missing, ")
    assert "kafka-acls.sh" not in out


def test_what_is_missing_ends_it_with_1_and_has_its_command_below(
    scene: Scene, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.target.denied = {(COPY, Operation.WRITE)}
    assert main(["check", str(file)]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last == (
        "kafka-acls.sh --bootstrap-server 127.0.0.1:2 --add --allow-principal User:ANONYMOUS "
        "--operation Write --topic east. --resource-pattern-type prefixed"
    )


def test_a_target_that_takes_no_record_ends_it_with_1(
    scene: Scene, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.target.configs[COPY] |= {"min.insync.replicas": "2"}
    assert main(["check", str(file)]) == 1
    assert "a partition has 1 replicas in sync of 1, and takes records with 2 or more" in " ".join(
        capsys.readouterr().out.split()
    )


def test_check_of_a_source_that_is_too_old_ends_with_1(
    scene: Scene, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.source.too_old = True
    assert main(["check", str(file)]) == 1
    assert "east is too old" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_all_that_is_known_for_programs(
    output: str, scene: Scene, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.target.denied = {(COPY, Operation.WRITE)}
    assert main(["check", str(file), "-o", output]) == 1
    out = capsys.readouterr().out
    document = json.loads(out)[0] if output == "json" else yaml.safe_load(out)
    (missing,) = [one for one in document["findings"] if one["result"] == "missing"]
    assert missing["acl"] == {
        "principal": "User:ANONYMOUS",
        "operation": "Write",
        "resourceType": "topic",
        "names": ["east."],
        "patternType": "prefixed",
    }


def test_a_manifest_without_flows_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n")
    assert main(["check", str(empty)]) == 3
    assert "there is no ReplicationFlow in" in capsys.readouterr().err
