"""Errors if no node can run, and images that need no registry."""

import json
import os
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import machine
import pytest
from cluster.archive import full_name, read_archive, write_archive
from cluster.find import real_cluster
from cluster.node import packages
from rich.console import Console

from headrace.errors import Fatal


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put only these programs on PATH, each a shell script, and no CNI plug-in anywhere."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "SEARCHED", str(tmp_path))
    monkeypatch.setattr(packages, "PLUGIN_FOLDERS", (tmp_path / "plugins",))

    def put(**scripts: str) -> None:
        for name, script in scripts.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)

    return put


def test_neither_docker_nor_root(
    only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    only(docker="echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Fatal, match=r"needs a Docker engine that answers .* or root on Linux"):
        real_cluster(Console())


def test_packages_are_missing_and_so_is_apt(only: Callable[..., None]) -> None:
    only(runc="", ip="", iptables="")
    with pytest.raises(
        Fatal, match="apt-get install containerd, containernetworking-plugins here: install that"
    ):
        packages.have_packages(Console())


def test_apt_says_no(only: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    only(containerd="", ctr="", runc="", ip="", apt_get="echo 'E: Unable to locate' >&2; exit 100")
    sentence = r"(?s)containernetworking-plugins, iptables, and `apt-get .*` failed:\nE: Unable"
    with pytest.raises(Fatal, match=sentence):
        packages.have_packages(Console())


def test_an_archive_says_what_it_holds(tmp_path: Path) -> None:
    written = write_archive(
        tmp_path / "image.tar", "localhost/it:1", {"/bin/it": b"program"}, ["/bin/it"]
    )
    with tarfile.open(written) as archive:

        def read(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file
            return file.read()

        (manifest,) = json.loads(read("manifest.json"))
        config = json.loads(read(manifest["Config"]))
        layer = read(manifest["Layers"][0])
        id = f"sha256:{sha256(read(manifest['Config'])).hexdigest()}"
    assert read_archive(written) == {"localhost/it:1": id}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{sha256(layer).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/bin/it"]


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("headrace:1", "docker.io/library/headrace:1"),
        ("me/headrace:1", "docker.io/me/headrace:1"),
        ("localhost/headrace:1", "localhost/headrace:1"),
        ("registry.example:5000/headrace:1", "registry.example:5000/headrace:1"),
    ],
)
def test_an_image_s_full_name(short: str, full: str) -> None:
    assert full_name(short) == full
