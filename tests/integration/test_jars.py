"""Jars are fetched by Ivy from the repository that is named, checked, and fetched once."""

import os
import subprocess
import sys
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from support.patience import WITHIN_S

from headrace.errors import Fatal, InvalidSpec
from headrace.toolchain import JarSet, jars, missing
from headrace.toolchain.jars import Jar, pinned

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId><version>{jar.version}</version>
</project>
"""


def _publish(repository: Path, jar: Jar, content: bytes) -> None:
    """Lay a jar out as a Maven repository does."""
    folder = repository.joinpath(*jar.group.split("."), jar.name, jar.version)
    folder.mkdir(parents=True)
    (folder / f"{jar.name}-{jar.version}.pom").write_text(POM.format(jar=jar))
    (folder / jar.file_name).write_bytes(content)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a test repository that HEADRACE_MAVEN_REPOSITORY names; the cache is empty."""
    folder = tmp_path / "repository & more"
    folder.mkdir()
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", folder.as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def real_jars(monkeypatch: pytest.MonkeyPatch) -> dict[Jar, bytes]:
    """Return the jars of the real repository (from the user's own cache after the first time)."""
    files = jars(JarSet.SPARK_KAFKA)
    return {jar: f.read_bytes() for jar, f in zip(pinned(JarSet.SPARK_KAFKA), files, strict=True)}


def test_spark_needs_no_repository_if_its_own_folder_has_the_jars(
    real_jars: dict[Jar, bytes], repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "packages" / "pyspark"
    (folder / "jars").mkdir(parents=True)
    (folder / "__init__.py").touch()
    for jar, content in real_jars.items():
        (folder / "jars" / jar.file_name).write_bytes(content)
    script = (
        "from pathlib import Path\nfrom headrace.toolchain.spark import local_spark\n"
        "print(local_spark(1, 512, '', Path())['PYSPARK_SUBMIT_ARGS'])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(folder.parent)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=True,
    ).stdout
    assert "--driver-memory 512m" in printed
    assert "--jars" not in printed


def test_they_come_from_the_named_repository_once(
    real_jars: dict[Jar, bytes],
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for jar, content in real_jars.items():
        _publish(repository, jar, content)
    got = jars(JarSet.SPARK_KAFKA)
    assert [path.read_bytes() for path in got] == list(real_jars.values())
    output = capsys.readouterr().err
    assert output == f"Downloading 4 jars (10 MB) from {repository.as_uri()}, once\n"

    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # a JVM could not be started any more
    assert jars(JarSet.SPARK_KAFKA) == got
    assert capsys.readouterr().err == ""


def test_a_jar_of_another_content_is_refused(
    real_jars: dict[Jar, bytes], repository: Path, tmp_path: Path
) -> None:
    changed = list(real_jars)[2]
    for jar, content in real_jars.items():
        _publish(repository, jar, content + b"!" if jar is changed else content)
    with pytest.raises(Fatal) as caught:
        jars(JarSet.SPARK_KAFKA)
    message = str(caught.value)
    assert f"{changed.group}:{changed.name}:{changed.version} as downloaded from" in message
    assert repository.as_uri() in message
    assert f"its SHA-256 is not {changed.sha256}" in message
    assert len(missing(JarSet.SPARK_KAFKA)) == 4
    assert not (tmp_path / "cache" / "headrace" / "ivy").exists()


def test_a_jar_that_is_not_there_is_named(
    real_jars: dict[Jar, bytes], repository: Path, tmp_path: Path
) -> None:
    for jar in list(real_jars)[:-1]:
        _publish(repository, jar, real_jars[jar])
    with pytest.raises(Fatal) as caught:
        jars(JarSet.SPARK_KAFKA)
    message = str(caught.value)
    where = repository.as_uri()
    assert f"from {where}: org.apache.commons#commons-pool2;2.13.1: not found. Behind" in message
    log = tmp_path / "cache" / "headrace" / "ivy.log"
    assert message.endswith(f"Ivy's whole output: {log}")
    assert "commons-pool2" in log.read_text()


def test_a_repository_that_does_not_answer_is_named(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", "http://127.0.0.1:9")  # no server listens
    with pytest.raises(Fatal) as caught:
        jars(JarSet.SPARK_KAFKA)
    message = str(caught.value)
    assert "could not download 4 jars from http://127.0.0.1:9: http://127.0.0.1:9/org/" in message
    assert "Connection refused" in message
    assert "HTTPS_PROXY" in message


def test_a_proxy_is_asked(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", "http://repository.invalid/maven2")
    asked: list[tuple[str, str]] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
            self.send_error(404 if self.headers.get("Proxy-Authorization") else 407)

        def send_error(self, code: int, *_: object) -> None:
            self.send_response(code)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        port = server.server_address[1]
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(Fatal, match="not found"):
            jars(JarSet.SPARK_KAFKA)
        server.shutdown()
        thread.join()
    assert {urlsplit(path).hostname for path, _ in asked} == {"repository.invalid"}
    assert b64decode(asked[-1][1].removeprefix("Basic ")) == b"me:p@ss"


def test_an_address_that_is_none_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", "my-mirror")
    with pytest.raises(InvalidSpec, match="HEADRACE_MAVEN_REPOSITORY is 'my-mirror'"):
        jars(JarSet.SPARK_KAFKA)


def test_two_processes_at_once_download_once(real_jars: dict[Jar, bytes], repository: Path) -> None:
    for jar, content in real_jars.items():
        _publish(repository, jar, content)
    script = "from headrace.toolchain import JarSet, jars; print(*jars(JarSet.SPARK_KAFKA))"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=WITHIN_S) for process in both]
    assert outputs[0][0] == outputs[1][0] != ""
    assert sum("Downloading" in errors for _, errors in outputs) == 1
