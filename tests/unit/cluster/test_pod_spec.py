"""Translation of a pod's spec by the stand-in kubelet."""

import sys
from pathlib import Path, PurePosixPath

import pytest
from cluster.pod_spec import Root, command_line, expanded

ROOT = Root(Path("/pods/a"), [PurePosixPath("/etc/secrets/east")])


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("/etc/secrets", "/pods/a/etc/secrets"),
        ("/etc/secrets/east/password", "/pods/a/etc/secrets/east/password"),
        ("--secrets=/etc/secrets", "--secrets=/pods/a/etc/secrets"),
        ("/etc/secrets/west", "/etc/secrets/west"),
        ("/", "/"),
        ("etc/secrets", "etc/secrets"),
        ("--x=/usr/bin", "--x=/usr/bin"),
        ("", ""),
    ],
)
def test_paths_of_mounts_move_below_the_pods_root(text: str, moved: str) -> None:
    assert ROOT.moved(text) == moved


def test_variables_are_expanded_as_kubernetes_does() -> None:
    assert expanded("$(A)/$(B) $$(A) $A", {"A": "a"}) == "a/$(B) $(A) $A"


def test_a_container_without_a_command_runs_its_images() -> None:
    container = {"args": ["driver", "--name", "$(NAME)"]}
    expected = [sys.executable, "-m", "headrace", "driver", "--name", "x"]
    assert command_line(container, {"NAME": "x"}, ROOT) == expected
