"""The choice of the Helm that the tests run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.helm import helm_binary

from headrace.errors import Fatal


@pytest.fixture
def put_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Reduce PATH to a ``helm`` with a given version, and a Go that builds nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name: str, script: str) -> Path:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    put("go", 'test "$1" = version && echo go version go1.26.0 linux/amd64 || exit 1')
    return lambda version: put("helm", f"echo {version}")


@pytest.mark.parametrize("version", ["v3.18.0+gcc58e3f", "v3.22", "v3.19.5"])
def test_the_one_on_path(put_on_path: Callable[[str], Path], version: str) -> None:
    program = put_on_path(version)
    assert helm_binary.__wrapped__() == program


@pytest.mark.parametrize("version", ["v3.17.4+gdeadbee", "v4.0.0", "not helm"])
def test_one_that_will_not_do_is_passed_over(
    put_on_path: Callable[[str], Path], version: str
) -> None:
    put_on_path(version)
    with pytest.raises(Fatal, match=r"(?s)^Helm could not be built: .*Helm 3\.18 or a newer 3 on"):
        helm_binary.__wrapped__()
