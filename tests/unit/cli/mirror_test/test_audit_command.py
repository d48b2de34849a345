"""``headrace audit`` before any start: manifests, error messages and exit codes."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.main import main
from headrace.cli.screen.exits import Exit
from headrace.control import control_server

SPEC: dict[str, Any] = {
    "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
    "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
    "topics": {"include": ["orders"]},
}


@pytest.fixture(autouse=True)
def own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@contextmanager
def running(spec: dict[str, Any] | None = None, lag_s: int | None = 0) -> Iterator[None]:
    """Answer on the control socket of a flow ``orders``. It may not know its lag."""
    status = {} if lag_s is None else {"lag": {"records": 1_000 * lag_s, "seconds": lag_s}}
    flow = {"metadata": {"name": "orders"}, "spec": {**SPEC, **(spec or {})}}
    answers: dict[str, dict[str, Any]] = {
        "access": {"flow": flow, "secrets": None},
        "flow": flow,
        "status": status,
    }
    serving, loop = threading.Event(), asyncio.new_event_loop()
    ended = asyncio.Event()

    async def answer(command: str, _: dict[str, Any]) -> dict[str, Any]:
        return answers[command]

    async def serve() -> None:
        async with control_server.serve("orders", answer):
            serving.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert serving.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()


def test_the_manifest_is_printed_and_nothing_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running():
        assert main(["audit", "orders", "--dry-run"]) == Exit.OK
        assert yaml.safe_load(capsys.readouterr().out) == {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "MirrorTest",
            "metadata": {"name": "orders-audit"},
            "spec": {"flowName": "orders", "audit": {}},
        }
        words = ["audit", "orders", "--topic", "a", "--topic", "b.*", "--exclude", "b-old"]
        words += ["--since", "2026-01-31T00:00:00Z", "--settle", "0", "--examples", "Hashes"]
        assert main([*words, "-o", "yaml"]) == Exit.OK
        printed = capsys.readouterr().out
        assert main(["audit", "orders", "--since", "last-audit", "-o", "yaml"]) == Exit.OK
        last = yaml.safe_load(capsys.readouterr().out)
        assert last["spec"]["audit"] == {"startFrom": {"mode": "LastAudit"}}
    assert yaml.safe_load(printed)["spec"] == {
        "flowName": "orders",
        "settleSeconds": 0,
        "audit": {
            "topics": ["a", "b.*"],
            "exclude": ["b-old"],
            "startFrom": {"mode": "Timestamp", "timestamp": "2026-01-31T00:00:00Z"},
            "examples": "Hashes",
        },
    }
    assert not (tmp_path / "headrace-reports").exists()
    (tmp_path / "audit.yaml").write_text(printed)
    assert main(["validate", "audit.yaml"]) == Exit.OK


def test_a_flow_that_does_not_run_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--dry-run"]):
        assert main(["audit", "orders", *more]) == Exit.UNREACHABLE
        assert "flow orders is not running here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"state": "Paused"}, "flow orders is paused: records that it has not copied"),
        ({"state": "Stopped"}, "flow orders is stopped: records that it has not copied"),
        ({"pausedPartitions": [{"topic": "orders"}]}, "flow orders is paused in part"),
    ],
)
def test_a_paused_flow_is_inconclusive(
    spec: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(spec):
        assert main(["audit", "orders"]) == Exit.INCONCLUSIVE
    message = capsys.readouterr().err
    assert sentence in message
    assert "resume it (`headrace flow resume orders`)" in message


def test_a_flow_that_remains_behind_is_inconclusive(capsys: pytest.CaptureFixture[str]) -> None:
    with running(lag_s=7):
        assert main(["audit", "orders", "--settle", "0"]) == Exit.INCONCLUSIVE
    assert "flow orders is 7 s and 7,000 records behind, more than 0 s" in capsys.readouterr().err


def test_flow_that_does_not_know_its_lag_is_inconclusive(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its tasks have just started, or the driver of one of them is lost."""
    with running(lag_s=None):
        assert main(["audit", "orders", "--settle", "0"]) == Exit.INCONCLUSIVE
    message = capsys.readouterr().err
    assert "flow orders does not know its lag (`headrace status orders` says why)" in message


def test_a_current_flow_is_audited_with_its_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running():
        words = ["audit", "orders", "--timeout", "1", "--report", "report"]
        assert main(words) == Exit.INCONCLUSIVE
    message = capsys.readouterr().err
    assert "Manifest: report/audit.yaml" in message
    assert "gave up after 1 s" in message
    assert yaml.safe_load((tmp_path / "report" / "audit.yaml").read_text())["kind"] == "MirrorTest"


def test_a_flow_of_a_manifest_need_not_run_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = {"apiVersion": "headrace.dev/v1beta1", "kind": "ReplicationFlow", "spec": SPEC}
    (tmp_path / "flow.yaml").write_text(yaml.safe_dump(flow | {"metadata": {"name": "orders"}}))
    assert main(["audit", "orders", "-f", "flow.yaml", "-o", "name"]) == Exit.OK
    assert capsys.readouterr().out == "mirrortest/orders-audit\n"
    assert main(["audit", "orders", "-f", "flow.yaml", "--timeout", "1"]) == Exit.INCONCLUSIVE
    assert "gave up after 1 s" in capsys.readouterr().err
    assert main(["audit", "other", "-f", "flow.yaml"]) == Exit.USAGE
    assert "contains these ReplicationFlows: orders" in capsys.readouterr().err


def test_a_wrong_pattern_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with running():
        assert main(["audit", "orders", "--topic", "(", "--report", "r"]) == Exit.USAGE
    message = capsys.readouterr().err
    assert "r/audit.yaml:" in message
    assert "spec.audit.topics" in message
