"""Archive of classes, created once for a Java and a class path, if the Java supports it."""

from pathlib import Path

import pytest

from headrace.toolchain import ClassArchive, Java

MAKES = """#!/bin/sh
for word do
  case $word in
    -XX:SharedClassListFile=*) classes=${word#*=} ;;
    -XX:SharedArchiveFile=*) archive=${word#*=} ;;
  esac
done
cat $classes > $archive
"""
FAILS = "#!/bin/sh\nexit 1\n"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "headrace" / "java"


def archive_of(folder: Path, script: str) -> ClassArchive:
    """Return the class archive of one jar and of a Java that is a shell script."""
    java, jar = folder / "home" / "bin" / "java", folder / "a.jar"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    jar.touch()
    return ClassArchive(Java(folder / "home", 21, "JAVA_HOME"), (jar,))


def test_it_is_made_of_the_classes_that_are_listed_whole(tmp_path: Path, cache: Path) -> None:
    archive, listed = archive_of(tmp_path, MAKES), tmp_path / "classes.txt"
    _, lists = archive.options(listed)
    assert lists == f"-XX:DumpLoadedClassList={listed}"
    listed.write_text("java/lang/Object\njava/lang/String\njava/la")
    archive.make(listed)
    assert archive.options(listed) == [f"-XX:SharedArchiveFile={archive.path}"]
    assert archive.path.read_text() == "java/lang/Object\njava/lang/String\n"
    assert {at.name for at in cache.iterdir()} == {archive.path.name, "classes.lock"}


def test_a_java_that_makes_none_is_asked_once(tmp_path: Path) -> None:
    archive, listed = archive_of(tmp_path, FAILS), tmp_path / "classes.txt"
    listed.write_text("java/lang/Object\n")
    archive.make(listed)
    assert archive.options(listed) == []


def test_a_jar_that_was_replaced_gets_another(tmp_path: Path) -> None:
    archive, listed = archive_of(tmp_path, MAKES), tmp_path / "classes.txt"
    listed.write_text("java/lang/Object\n")
    archive.make(listed)
    (tmp_path / "a.jar").unlink()
    (tmp_path / "a.jar").write_bytes(b"another")
    assert archive.options(listed)[-1].startswith("-XX:DumpLoadedClassList=")
