"""Build hook of the wheel: adds the C helper if there is a compiler, and nothing otherwise."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.join_helper import ROOT, build_script

from headrace.kafka.wire.native import LIBRARY, native

SOURCES = [LIBRARY.with_name("native.c"), LIBRARY.with_name("crc32c.h")]


def built(folder: Path, version: str) -> dict[str, Any]:
    """Return the data that the hook adds to a build of a clone in that folder."""
    for source in SOURCES:
        copy = folder / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    data: dict[str, Any] = {"artifacts": [], "pure_python": True}
    hook = build_script().Helper(str(folder), {}, None, None, str(folder), "wheel")
    hook.initialize(version, data)
    return data


def test_a_wheel_with_the_helper_is_of_this_platform(tmp_path: Path) -> None:
    data = built(tmp_path, "standard")

    [artifact] = data["artifacts"]
    assert native(tmp_path / artifact.lstrip("/")) is not None
    assert data["pure_python"] is False
    assert data["tag"].startswith("py3-none-linux_")


def test_an_editable_installation_has_it_in_the_clone(tmp_path: Path) -> None:
    data = built(tmp_path, "editable")

    assert (tmp_path / LIBRARY.relative_to(ROOT)).exists()
    assert "tag" not in data


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_a_wheel_without_a_compiler_is_for_every_platform(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiler: str,
) -> None:
    monkeypatch.setenv("CC", compiler)

    assert built(tmp_path, "standard") == {"artifacts": [], "pure_python": True}
    assert "without its hot path in C" in capsys.readouterr().err


def test_without_cc_the_compiler_of_a_package_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    script = build_script()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(script.shutil, "which", lambda _: None)
    monkeypatch.setattr(script, "find_spec", lambda _: None)
    assert script.compiler() == ["cc"], "to be named as what is missing"

    monkeypatch.setattr(script, "find_spec", lambda _: object())
    assert script.compiler() == [sys.executable, "-m", "ziglang", "cc"]


def test_what_is_no_library_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF")

    assert native(tmp_path / "broken.so") is None
    assert native(tmp_path / "missing.so") is None


def test_a_library_of_other_sources_is_not_used(tmp_path: Path) -> None:
    """A clone may be updated but not installed again. A call with other arguments would crash."""
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text("long headrace_join(void) { return 0; }\n")
    command = [*build_script().compiler(), "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True)

    assert native(library) is None


def test_dockerfiles_have_what_the_build_needs() -> None:
    for image in ("operator", "spark-jobs"):
        assert "hatch_build.py" in (ROOT / image / "Dockerfile").read_text()
    assert "!hatch_build.py" in (ROOT / ".dockerignore").read_text()
