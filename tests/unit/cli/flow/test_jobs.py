"""Jobs that run a command in a cluster. tests/e2e/test_fail_over.py runs one."""

from pathlib import Path

import pytest
import yaml

from headrace.cli.main import main
from headrace.cli.screen.exits import Exit

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("verb", "command"),
    [
        ("failover", ["failover"]),
        ("reverse", ["flow", "reverse"]),
        ("import", ["flow", "import", "mm2"]),
        ("audit", ["audit"]),
    ],
)
def test_job_has_the_manifest_the_secrets_and_the_options(
    verb: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "examples/secure-flow.yaml")
    options = ["-n", "shop", "--image", "example/headrace:1", "--", "--dry-run"]
    assert main(["job", verb, "secure-orders", "-f", file, *options]) == 0
    config_map, job = yaml.safe_load_all(capsys.readouterr().out)
    manifest = yaml.safe_load(config_map["data"]["flow.yaml"])
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("ReplicationFlow", "secure-orders")
    assert config_map["metadata"] == job["metadata"]
    assert job["metadata"]["namespace"] == "shop"
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][: len(command) + 1] == [*command, "secure-orders"]
    assert container["args"][-1] == "--dry-run"
    assert pod["automountServiceAccountToken"] is False
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    (secrets,) = [one for one in container["args"] if one.startswith("--secrets=")]
    folder = secrets.removeprefix("--secrets=")
    names = ("east-ca", "east-user", "west-ca", "west-client")
    assert mounted >= {f"{folder}/{name}" for name in names}
    assert {one["name"] for one in container["volumeMounts"]} == {
        one["name"] for one in pod["volumes"]
    }


def test_a_flow_without_secrets_names_no_folder_of_secrets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(ROOT / "examples/flow.yaml")
    assert main(["job", "failover", "orders", "-f", file, "--image", "example/headrace:1"]) == 0
    _, job = yaml.safe_load_all(capsys.readouterr().out)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert not [one for one in container["args"] if one.startswith("--secrets")]


def test_a_flow_that_the_manifest_does_not_hold_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(ROOT / "examples/flow.yaml")
    assert (
        main(["job", "failover", "other", "-f", file, "--image", "example/headrace:1"])
        == Exit.USAGE
    )
    assert "contains these ReplicationFlows" in capsys.readouterr().err
