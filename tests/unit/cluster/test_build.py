"""Builds of the tests' programs, and the errors if a build fails."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import progress
import pytest
from cluster.build import CLUSTER, NODE, cluster_binary
from cluster.go import find_go
from cluster.program import have_programs
from rich.console import Console

from headrace.errors import Fatal


@pytest.fixture
def put_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put only a ``go`` with this script on PATH, with an empty cache and PyPI unreachable."""
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
    with pytest.raises(Fatal, match=r"(?s)there is no `go` on PATH, and PyPI's .*Install Go 1\.26"):
        find_go()


def test_a_go_that_is_too_old_is_passed_over(put_on_path: Callable[[str], None]) -> None:
    put_on_path("echo go version go1.19.8 linux/amd64")
    with pytest.raises(Fatal, match=r"`go` on PATH is passed over, as it says .*go1\.19\.8"):
        find_go()


def test_what_go_says_is_shown(put_on_path: Callable[[str], None]) -> None:
    put_on_path(
        'test "$1" = version && echo go version go1.26.0 linux/amd64 && exit\n'
        "echo 'go: no such host' && exit 1"
    )
    sentence = r"(?s)could not be built: .*go: no such host.*GOPROXY.*`make check` runs the tests"
    with pytest.raises(Fatal, match=sentence):
        cluster_binary()


BUILDS = """
test "$1" = version && echo go version go1.26.0 linux/amd64 && exit
echo "$@" >> {log}
test "$1" = list && echo one && echo two && exit
while test "$1" != -o; do shift; done
/bin/mkdir -p "$2" && : > "$2/cluster" && : > "$2/node" && echo one >&2
"""


def test_programs_of_one_module_are_built_at_once_and_once(
    put_on_path: Callable[[str], None], tmp_path: Path
) -> None:
    log, output = tmp_path / "log", io.StringIO()
    put_on_path(BUILDS.format(log=log))
    for _ in range(2):
        have_programs((CLUSTER, NODE), Console(file=output))
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["list", "build"]
    assert log.read_text().endswith(" . ./node\n")
    assert CLUSTER.get().name == "cluster"
    assert NODE.get().name == "node"
    assert "the tests' API server, the tests' Kubernetes node" in output.getvalue()


TAKES_LONG = """
test "$1" = version && echo go version go1.26.0 linux/amd64 && exit
shown() {{
  n=0
  until /bin/grep -q "$1" {shown} || test $n = 3000; do n=$((n + 1)); /bin/sleep 0.02; done
}}
test "$1" = list && echo "go: downloading a v1" && shown "modules downloaded: 1" \\
  && echo one && echo two && shown "2 packages found" && exit
while test "$1" != -o; do shift; done
echo one >&2 && shown "1 of 2 packages"
/bin/mkdir -p "$2" && : > "$2/cluster"
"""


def test_a_file_shows_how_far_downloads_and_compilation_are(
    put_on_path: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    shown = tmp_path / "shown"
    put_on_path(TAKES_LONG.format(shown=shown))
    with shown.open("w", buffering=1) as file:
        have_programs((CLUSTER,), Console(file=file))
    lines = [re.sub(r", \d+ s$", "", line) for line in shown.read_text().splitlines()]
    # The first package may be displayed before the second one is read.
    passing = re.compile("still|1 packages found")
    assert list(dict.fromkeys(line for line in lines[1:] if not passing.search(line))) == [
        "go: modules ...",
        "go: modules: modules downloaded: 1",
        "go: modules: 2 packages found",
        "go: modules: done",
        "go: compilation ...",
        "go: compilation: 1 of 2 packages",
        "go: compilation: done",
    ]
