"""Images that ``make push`` signs if a key is given, recorded by a stand-in for cosign."""

import os
import subprocess
from pathlib import Path

import pytest
from images.sign import FLAGS, KEY, Signer, find_signer

from headrace.errors import Fatal

ROOT = Path(__file__).parents[2]
NAME = f"registry.example/team/headrace@sha256:{'a' * 64}"


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    key = tmp_path / "cosign.key"
    key.write_text("of nobody")
    monkeypatch.setenv(KEY, str(key))
    return key


@pytest.fixture
def cosign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cosign that fails for a name that ends with ``b``."""
    program = tmp_path / "cosign"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/notes\ncase "$*" in *b) exit 1 ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("COSIGN", str(program))
    return program


def found() -> Signer:
    signer = find_signer()
    assert signer
    return signer


def test_what_was_pushed_is_signed_and_its_content_attested(
    key: Path, cosign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FLAGS, "--yes --tlog-upload=false")
    signer, spdx = found(), tmp_path / "headrace.spdx.json"
    signer.sign(NAME)
    signer.attest(NAME, spdx)
    flags = f"--key {key} --yes --tlog-upload=false"
    assert (tmp_path / "notes").read_text().splitlines() == [
        f"sign {flags} {NAME}",
        f"attest {flags} --type spdxjson --predicate {spdx} {NAME}",
    ]


@pytest.mark.usefixtures("cosign")
def test_a_key_of_a_store_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "awskms:///alias/headrace")
    assert found().key == "awskms:///alias/headrace"


@pytest.mark.usefixtures("cosign")
def test_without_a_key_nothing_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    assert find_signer() is None


@pytest.mark.usefixtures("cosign")
def test_a_key_that_is_not_there_is_found_before_anything_is_pushed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEY, "/nowhere/cosign.key")
    with pytest.raises(Fatal, match=r"^nothing was pushed: KEY=/nowhere/cosign.key is no file"):
        find_signer()


@pytest.mark.usefixtures("key")
def test_so_is_cosign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN", "/nowhere/cosign")
    with pytest.raises(Fatal, match=r"^nothing was pushed: cosign, which signs with KEY, is not"):
        find_signer()


@pytest.mark.usefixtures("key", "cosign")
def test_what_is_pushed_and_could_not_be_signed_is_named() -> None:
    name = f"registry.example/team/headrace@sha256:{'b' * 64}"
    with pytest.raises(Fatal, match=rf"{name} is pushed, and not signed: .* run `\S+ sign --key"):
        found().sign(name)


@pytest.mark.parametrize(
    ("given", "exported"),
    [
        ("", ""),
        ("cosign.key", f"{ROOT}/cosign.key"),
        ("/etc/cosign.key", "/etc/cosign.key"),
        ("k8s://signing/key", "k8s://signing/key"),
    ],
)
def test_the_makefile_hands_the_key_on(given: str, exported: str) -> None:
    """``make push`` works in ``tools``, but a path is relative to the folder of the call."""
    rules = f"include {ROOT}/Makefile\n"
    printed = 'push: ; @echo "<$$HEADRACE_KEY>"\n'
    done = subprocess.run(
        ["make", "-s", "-f", "-", "push", f"KEY={given}", "INSTALLED="],
        input=rules + printed,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"<{exported}>" in done.stdout, done.stderr
