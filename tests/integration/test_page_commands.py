"""Commands of the pages, in a shell with HOME and PATH only, against real brokers.

Only names, addresses and ports differ from what the pages print.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.flows import manifest, spec
from support.manifests import mirror_test_of_another
from support.page_commands import ROOT, command, with_words
from support.plain_shell import PlainShell
from support.records import make_topic, numbered, produce, unique

from headrace.api import MirrorTest, Verdict
from headrace.mirror_test import Result, documents
from headrace.report.signing import read_private_key, sign_report
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import held_ports

WaitUntil = Callable[..., Any]


def test_commands_of_this_machine(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    shell = PlainShell(tmp_path)
    flow = make_topic(spec(east), unique("orders"), 2)
    produce(spec(east), flow, numbered(10, 2))
    with held_ports([None]) as (port,):
        words = {
            "FLOW": flow,
            "orders-flow": flow,
            "orders": flow,
            "TOPIC/PARTITION": f"{flow}/1",
            "9404": str(port),
            "kafka-east:9092": east.bootstrap_servers,
            "kafka-west:9092": west.bootstrap_servers,
        }
        _run_flow(shell, words, wait_until)
    _convert(shell, words, east, west)
    _complete(shell)
    _check_signature(shell)


def _run_flow(shell: PlainShell, words: Mapping[str, str], wait_until: WaitUntil) -> None:
    (written,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (shell.folder / "flow.yaml").write_text(with_words(written, words))
    (shell.folder / "secrets").mkdir()
    validate, run, status = (
        line.partition("#")[0].strip()
        for line in with_words(command("README", ".venv/bin/headrace"), words).splitlines()
    )

    def ready() -> bool:
        return bool(re.search(rf"(?m)^{words['orders']} +True", shell.run(f"{status} || true")))

    assert "valid" in shell.run(validate)
    with shell.running(run):
        wait_until(ready)
    assert "0 missing" in shell.run(with_words(command("permissions", "headrace check"), words))
    with shell.running(with_words(command("monitoring", "headrace run"), words).strip()):
        wait_until(ready)
        _, _, groups = command("checkpoints", "$ headrace flow groups").partition("$ ")
        shell.run(with_words(groups.splitlines()[0], words))
        reset = command("runbook", "headrace flow reset FLOW TOPIC/PARTITION --dry-run")
        shell.run(with_words(reset, words))
        wait_until(ready)
        shell.run(with_words(command("fail-over", "headrace failover FLOW --dry-run"), words))
        fail_over = command("fail-over", "headrace failover FLOW\n")
        assert "failed over" in shell.run(with_words(fail_over, words))


def _convert(
    shell: PlainShell, words: Mapping[str, str], east: SandboxCluster, west: SandboxCluster
) -> None:
    (shell.folder / "mm2.properties").write_text(
        f"clusters = east, west\n"
        f"east.bootstrap.servers = {east.bootstrap_servers}\n"
        f"west.bootstrap.servers = {west.bootstrap_servers}\n"
        f"east->west.enabled = true\neast->west.topics = {words['orders']}\n"
    )
    shell.run(command("coming-from-mirrormaker-2", "headrace convert mm2.properties"))
    old = yaml.safe_load((shell.folder / "flow.yaml").read_text())
    old["apiVersion"] = "headrace.dev/v1alpha1"
    (shell.folder / "flow.yaml").write_text(yaml.safe_dump(old))
    shell.run(command("migrate-v1beta1", "headrace convert flow.yaml"))


def _complete(shell: PlainShell) -> None:
    """Print the scripts of all shells, and load the one of bash."""
    bash, *others = command("cli", "source <(headrace completion bash)").splitlines()
    shell.run(f"{bash}\ncomplete -p headrace")
    assert len(others) == 2
    for line in others:
        (printing,) = re.findall(r"headrace completion \w+", line)
        assert "headrace" in shell.run(printing)


def _check_signature(shell: PlainShell) -> None:
    shell.run(command("audits", "openssl genpkey"))
    report = shell.folder / "report.json"
    test = MirrorTest.model_validate(mirror_test_of_another("migration"))
    found = Result(
        verdict=Verdict.PASSED,
        reasons=("all records are on the target",),
        run="r-1",
        test=test,
        judged_ms=1000,
        versions={},
    )
    documents.write(report, found)
    sign_report(report, read_private_key(shell.folder / "key.pem"), 1_764_345_600_000)
    assert "signed" in shell.run(command("audits", "headrace test report"))


@pytest.fixture
def shell(east: SandboxCluster, west: SandboxCluster, tmp_path: Path) -> PlainShell:
    """Return a shell whose folder has a flow that keeps the names of topics, and its test."""
    shell, name = PlainShell(tmp_path), unique("nightly")
    flow = manifest(
        name,
        east,
        west,
        f"{name}.*",
        replicationPolicy={"type": "Identity"},
        drivers={"replicas": 1},
    )
    spec = {side: flow["spec"][side] for side in ("source", "target")}
    load = {"messages": 500, "topics": 1, "producers": 1}
    test = {
        "apiVersion": flow["apiVersion"],
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": {**spec, "targetTopic": "{topic}", "load": load},
    }
    (shell.folder / "flow.yaml").write_text(yaml.safe_dump(flow))
    (shell.folder / "test.yaml").write_text(yaml.safe_dump(test))
    (shell.folder / "secrets").mkdir()
    return shell


@contextmanager
def _mirror(shell: PlainShell, wait_until: WaitUntil) -> Iterator[str]:
    """Yield the name of the flow of the folder, which runs."""
    name: str = yaml.safe_load((shell.folder / "flow.yaml").read_text())["metadata"]["name"]
    with shell.running("headrace run flow.yaml"):
        wait_until(lambda: "True" in shell.run(f"headrace status {name} || true"))
        yield name


def test_commands_of_kafka_mirror_tester(
    shell: PlainShell, east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    with _mirror(shell, wait_until) as name:
        topic = f"{name}-orders"
        for cluster in (east, west):
            make_topic(spec(cluster), topic, 1)
        block = command("mirror-test-formats", ".venv/bin/python spark-jobs/probe.py --id p1")
        with held_ports([None, None]) as (probe_port, load_port):
            words = {
                "orders": topic,
                "east:9092": east.bootstrap_servers,
                "west:9092": west.bootstrap_servers,
                "testers": f"testers --metrics-port={probe_port}",
                "--seconds 10": f"--seconds 10 --metrics-port={load_port}",
            }
            shell.run(with_words(block, words))
    sent, *faults = _counts(shell, "headrace-reports/p1")
    assert sent > 1000
    assert faults == [0, 0]


@pytest.mark.long
def test_commands_of_a_mirror_test(shell: PlainShell, wait_until: WaitUntil) -> None:
    shell.run(command("mirror-tests", "headrace validate"))
    shell.run(command("use-in-ci", "headrace validate"))
    with _mirror(shell, wait_until):
        shell.run(command("use-in-ci", "headrace verify test.yaml"))
        assert (shell.folder / "junit.xml").exists()
        assert _counts(shell, "report") == (500, 0, 0)
        shutil.rmtree(shell.folder / "report")
        block = command("mirror-test-formats", ".venv/bin/python spark-jobs/produce.py --test")
        shell.run(block)
        assert _counts(shell, "report") == (500, 0, 0)


def _counts(shell: PlainShell, folder: str) -> tuple[int, int, int]:
    report = (shell.folder / folder / "report.json").read_text()
    counts = Result.model_validate_json(report).counts
    assert counts is not None, report
    return counts.acknowledged, counts.missing, counts.duplicated
