"""What is said when the tests' API server cannot be built."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.build import cluster_binary
from cluster.go import find_go

from headrace.errors import Fatal


@pytest.fixture
def put_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Nothing is on PATH but a ``go`` with this script, nothing is cached, and PyPI is away."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    def put(script: str) -> None:
        go = tmp_path / "go"
        go.write_text(f"#!/bin/sh\n{script}\n")
        go.chmod(0o755)

    return put


@pytest.mark.usefixtures("put_on_path")
def test_no_go_and_no_way_to_one() -> None:
    with pytest.raises(Fatal, match=r"(?s)there is no `go` on PATH, and PyPI's .*Install Go 1\.25"):
        find_go()


def test_a_go_that_is_too_old_is_passed_over(put_on_path: Callable[[str], None]) -> None:
    put_on_path("echo go version go1.19.8 linux/amd64")
    with pytest.raises(Fatal, match=r"`go` on PATH is passed over, as it says .*go1\.19\.8"):
        find_go()


def test_what_go_says_is_shown(put_on_path: Callable[[str], None]) -> None:
    put_on_path(
        'test "$1" = version && echo go version go1.25.0 linux/amd64 && exit\n'
        "echo 'go: no such host' && exit 1"
    )
    sentence = r"(?s)could not be built: .*go: no such host.*GOPROXY.*`make check` runs the tests"
    with pytest.raises(Fatal, match=sentence):
        cluster_binary()
