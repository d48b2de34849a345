"""``headrace verify`` before any start: error messages and exit codes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from headrace import logs
from headrace.api import MirrorTest, ReplicationFlow
from headrace.api.labels import COMMIT_INTERVAL_ANNOTATION, FLOW_LABEL
from headrace.cli.main import main
from headrace.cli.screen.exits import Exit
from headrace.errors import InvalidSpec
from headrace.kafka import Admin
from headrace.mirror_test import MirrorTestRun
from headrace.mirror_test.run import resolve
from headrace.sandbox.processes import held_ports
from headrace_spark import command

SCRIPTS = Path(__file__).parents[4] / "spark-jobs"


@pytest.fixture(autouse=True)
def own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def nobody() -> Iterator[str]:
    """Yield an address on which no process listens."""
    with held_ports([None]) as (port,):
        yield f"127.0.0.1:{port}"


def manifest(name: str = "t", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": spec,
    }


def clusters(address: str) -> dict[str, Any]:
    return {
        "source": {"alias": "east", "bootstrapServers": address},
        "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
    }


def write(folder: Path, *documents: dict[str, Any]) -> str:
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def test_a_flow_that_does_not_run_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, manifest(flowName="orders"))
    assert main(["verify", file]) == Exit.UNREACHABLE
    assert "flow orders is not running here" in capsys.readouterr().err


@pytest.mark.parametrize("by", ["option", "variable"])
def test_messages_are_json_if_the_log_is(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verify", write(tmp_path, manifest(flowName="orders"))]
    if by == "option":
        words.append("--log-format=json")
    else:
        monkeypatch.setenv("HEADRACE_LOG_FORMAT", "json")
    try:
        assert main(words) == Exit.UNREACHABLE
    finally:
        logs.configure(format="logfmt")
    (line,) = capsys.readouterr().err.splitlines()
    assert "flow orders is not running here" in json.loads(line)["event"]


def junit_error(file: Path) -> str:
    """Return the message of the only test case, which is an error."""
    [suite] = ElementTree.parse(file).getroot()
    [error] = suite.findall("testcase[@name='verdict']/error")
    assert suite.get("tests") == suite.get("errors") == "1"
    return error.attrib["message"]


@pytest.mark.parametrize(
    ("spec", "code", "sentence"),
    [
        ({"flowName": "orders"}, Exit.UNREACHABLE, "flow orders is not running here"),
        ({"flowName": "orders", "load": {"messagse": 5}}, Exit.USAGE, "messagse"),
        (
            {"flowName": "orders", "load": {"durationSeconds": 0}},
            Exit.USAGE,
            "--junit needs a load that ends",
        ),
    ],
)
def test_an_error_before_the_start_is_an_error_in_junit(
    tmp_path: Path, spec: dict[str, Any], code: Exit, sentence: str
) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text("of an earlier run")
    assert main(["verify", write(tmp_path, manifest(**spec)), "--junit", str(junit)]) == code
    assert sentence in junit_error(junit)


def test_a_junit_file_that_cannot_be_written_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, manifest(flowName="orders"))
    assert main(["verify", file, "--junit", f"{file}/junit.xml"]) == Exit.USAGE
    assert "junit.xml cannot be written" in capsys.readouterr().err


def test_an_unreachable_broker_is_given_up(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, manifest(**clusters(nobody)))
    assert main(["verify", file, "--timeout", "1"]) == Exit.INCONCLUSIVE
    message = capsys.readouterr().err
    assert f"east ({nobody})" in message
    assert "gave up after 1 s" in message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"chaos": [{"action": "KillDriver", "atPercent": 50}]}, "spec.chaos: needs flowName"),
        ({"partitioning": "Some"}, "spec.partitioning"),
        ({"load": {"messagse": 5}}, "messagse"),
    ],
)
def test_what_cannot_be_tested_is_refused(
    tmp_path: Path,
    nobody: str,
    spec: dict[str, Any],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", write(tmp_path, manifest(**clusters(nobody), **spec))]) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_a_refused_field_is_named_with_file_and_line(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [{"atSeconds": 1, "action": "RunCommand", "command": ["touch", "a"]}]
    test = manifest(**clusters(nobody), chaos=steps)
    file = write(tmp_path, manifest("other", flowName="f"), test)
    assert main(["verify", file, "--name", "t"]) == Exit.USAGE
    line = next(
        number
        for number, text in enumerate(Path(file).read_text().splitlines(), 1)
        if "command" in text
    )
    refused = f"{file}:{line}: spec.chaos[0].command: this test runs a program"
    assert refused in capsys.readouterr().err


def test_commands_are_run_only_for_who_says_so(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [{"action": "RunCommand", "command": ["touch", str(tmp_path / "ran")], "atSeconds": 1}]
    file = write(tmp_path, manifest(**clusters(nobody), chaos=steps))
    assert main(["verify", file]) == Exit.USAGE
    refused = capsys.readouterr().err
    assert "spec.chaos[0].command: this test runs a program on this machine" in refused
    assert main(["verify", file, "--run-commands", "--timeout", "1"]) == Exit.INCONCLUSIVE
    assert not (tmp_path / "ran").exists()


def test_a_step_that_needs_pods_is_named_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [{"action": "KillDriver", "atPercent": 1}, {"atPercent": 2, "action": "KillOperator"}]
    file = write(tmp_path, manifest(flowName="f", chaos=steps))
    assert main(["verify", file]) == Exit.USAGE
    line = next(
        number
        for number, text in enumerate(Path(file).read_text().splitlines(), 1)
        if "KillOperator" in text
    )
    assert f"{file}:{line}: spec.chaos[1].action: KillOperator" in capsys.readouterr().err


def test_a_host_that_has_no_address_is_named(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, manifest(**clusters(f"{nobody},kafka.invalid:9092")))
    assert main(["verify", file, "--timeout", "1"]) == Exit.INCONCLUSIVE
    assert "kafka.invalid cannot be resolved to an address; gave up" in capsys.readouterr().err


def test_one_of_several_tests_has_to_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, manifest("a", flowName="f"), manifest("b", flowName="f"))
    assert main(["verify", file]) == Exit.USAGE
    assert "a, b; name one of them with --name" in capsys.readouterr().err
    assert main(["verify", file, "--name", "c"]) == Exit.USAGE
    assert main(["verify", file, "--name", "b"]) == Exit.UNREACHABLE
    assert "flow f is not running here" in capsys.readouterr().err


def test_usage_errors_are_not_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify"]) == Exit.USAGE
    assert main(["verify", "a.yaml", "--timeout", "soon"]) == Exit.USAGE
    assert "soon" in capsys.readouterr().err


@pytest.mark.parametrize("crash", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_crash_of_headrace_is_no_verdict(
    tmp_path: Path,
    crash: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object) -> None:
        raise crash

    monkeypatch.setattr(Admin, "cluster_id", fails)
    file = write(tmp_path, manifest(**clusters("127.0.0.1:1")))
    assert main(["verify", file, "--junit", "out/junit.xml"]) == Exit.INCONCLUSIVE
    assert "there is no verdict" in capsys.readouterr().err
    assert "there is no verdict" in junit_error(tmp_path / "out" / "junit.xml")


def a_flow(**spec: Any) -> ReplicationFlow:
    return ReplicationFlow.model_validate(
        {
            "metadata": {"name": "orders"},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:1"},
                "target": {"alias": "west", "bootstrapServers": "w:1", "replicationFactor": 3},
                "topics": {"include": [".*"]},
                **spec,
            },
        }
    )


@pytest.mark.parametrize(
    ("policy", "target"),
    [({}, "east.t-0"), ({"separator": "_"}, "east_t-0"), ({"type": "Identity"}, "t-0")],
)
def test_a_test_takes_clusters_names_and_promises_from_its_flow(
    policy: dict[str, str], target: str
) -> None:
    flow = a_flow(replicationPolicy=policy, delivery={"mode": "ExactlyOnce"})
    test = MirrorTest.model_validate(
        manifest(flowName="orders", chaos=[{"action": "KillDriver", "atPercent": 50}])
    )
    resolved = resolve(test, flow)
    # The jobs receive an ordinary manifest.
    document = resolved.model_dump_json(by_alias=True)
    run = MirrorTestRun(name="r", test=MirrorTest.model_validate_json(document))
    assert run.topics["t-0"] == target
    assert (run.source.bootstrap_servers, run.target.bootstrap_servers) == ("e:1", "w:1")
    assert run.flow == resolved.metadata.annotations[FLOW_LABEL] == "orders"
    assert run.test.spec.budgets.duplicated == 0
    assert run.test.metadata.annotations[COMMIT_INTERVAL_ANNOTATION] == "1000"


@pytest.mark.parametrize(
    ("offsets", "asked", "allowed"),
    [
        ("Preserved", {}, 0),
        ("Preserved", {"budgets": {"unequalOffsets": 3}}, 3),
        ("Preserved", {"partitioning": "Any"}, None),
        ("Translated", {}, None),
        ("Translated", {"budgets": {"unequalOffsets": 0}}, 0),
    ],
)
def test_of_a_flow_that_preserves_offsets_none_may_be_another(
    offsets: str, asked: dict[str, Any], allowed: int | None
) -> None:
    test = MirrorTest.model_validate(manifest(flowName="orders", **asked))
    resolved = resolve(test, a_flow(offsets={"mode": offsets}))
    document = resolved.model_dump_json(by_alias=True)
    spec = MirrorTest.model_validate_json(document).spec
    assert spec.budgets.unequal_offsets == allowed


def test_a_fail_over_that_cannot_be_undone_is_not_rehearsed() -> None:
    test = MirrorTest.model_validate(manifest(flowName="orders", rehearsal={}))
    sentence = (
        "t: spec.rehearsal is not possible with flow orders, which has offsets.mode: Preserved: "
    )
    with pytest.raises(InvalidSpec, match=sentence):
        resolve(test, a_flow(offsets={"mode": "Preserved"}))
    assert resolve(test, a_flow()).spec.rehearsal is None


def test_a_topic_of_the_load_that_the_flow_names_otherwise_is_refused() -> None:
    renames = {"t-1": "renamed"}
    flow = a_flow(
        topics={"include": ["t-.*"]}, replicationPolicy={"type": "RenameMap", "renames": renames}
    )
    test = MirrorTest.model_validate(manifest(flowName="orders", load={"topics": 2}))
    with pytest.raises(InvalidSpec, match=r"copies topic t-1 as renamed, and others as {topic}: "):
        resolve(test, flow)
    one = MirrorTest.model_validate(manifest(flowName="orders", load={"topics": 1}))
    assert resolve(one, flow).spec.target_topic == "{topic}"


def test_a_job_without_arguments_is_bad_usage(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, SCRIPTS / "verify.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == Exit.USAGE, ended.stderr
    assert "--test" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--test", "test.yaml", "--run", "No!"], "must be 1 to 20 of"),
        (["--test", "test.yaml", "--run", "r"], "`headrace verify` finds the flow"),
        (["--test", "none.yaml", "--run", "r"], "none.yaml"),
    ],
)
def test_bad_usage_of_a_job(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    write(tmp_path, manifest(flowName="orders"))
    monkeypatch.setattr(sys, "argv", ["verify.py", *arguments, "--out", "."])
    assert command.verify() == Exit.USAGE
    assert message in capsys.readouterr().err
