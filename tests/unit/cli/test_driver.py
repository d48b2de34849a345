"""Errors of a driver that cannot start."""

import socket
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.cli.screen.exits import Exit


def test_a_driver_without_a_flow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["driver", "--name", "a"]) == Exit.USAGE
    assert "--flow" in capsys.readouterr().err


def test_no_api_server_to_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["driver", "--name", "a", "--flow", "orders"]) == Exit.USAGE
    assert "driver a does not know which API server to ask" in capsys.readouterr().err


def test_an_address_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(
        """
        current-context: c
        contexts: [{name: c, context: {cluster: c, user: u}}]
        clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
        users: [{name: u, user: {}}]
        """
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = ["--pod-ip=127.0.0.1", f"--port={port}"]
        assert main(["driver", "--name=a", "--flow=orders", *where]) == Exit.USAGE
    errors = capsys.readouterr().err
    assert f"cannot serve health on 127.0.0.1:{port} (Address already in use)" in errors
