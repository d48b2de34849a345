"""Pinned jars for JVMs, downloaded by Ivy and verified by their SHA-256."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import file_digest
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from headrace.errors import Fatal, InvalidSpec
from headrace.host import cache_home, file_lock, spawn, write_whole
from headrace.toolchain.java import Java, find_java


def proxy_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Java system properties for ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``.

    A JVM does not read these variables, which may be in upper or lower case. The names of the
    properties are from "Networking Properties" in the documentation of java.net. The names of the
    user and the password are from Ivy's IvyAuthenticator. Raise ``InvalidSpec`` if an address is
    invalid.
    """
    properties: dict[str, str] = {}
    for scheme in ("http", "https"):
        variable = f"{scheme}_proxy"
        given = environment.get(variable) or environment.get(variable.upper())
        if not given:
            continue
        try:
            proxy = urlsplit(given if "://" in given else f"http://{given}")
            host, port = proxy.hostname, proxy.port
        except ValueError:
            host, port = None, None
        if not host:
            raise InvalidSpec(
                f"{variable.upper()} is no address of a proxy, such as http://proxy.example:3128"
            )
        properties[f"{scheme}.proxyHost"] = host
        properties[f"{scheme}.proxyPort"] = str(port or 80)
        if proxy.username:
            properties["http.proxyUser"] = unquote(proxy.username)
            properties["http.proxyPassword"] = unquote(proxy.password or "")
            # By default, Java does not send a password to a proxy for https.
            properties["jdk.http.auth.tunneling.disabledSchemes"] = ""
    if no_proxy := environment.get("no_proxy") or environment.get("NO_PROXY"):
        properties["http.nonProxyHosts"] = "|".join(_patterns(no_proxy))
    return properties


def _patterns(no_proxy: str) -> list[str]:
    """Return the patterns of ``NO_PROXY`` in Java's syntax.

    In curl's syntax a name includes its subdomains, and Java requires a star for them.
    """
    patterns = []
    for entry in filter(None, (part.strip() for part in no_proxy.split(","))):
        name = entry.lstrip("*.")
        patterns += [name, f"*.{name}"] if name else ["*"]
    return patterns


REPOSITORY_VARIABLE = "HEADRACE_MAVEN_REPOSITORY"


def repository() -> str:
    """Describe the repository of the jars for messages."""
    return os.environ.get(REPOSITORY_VARIABLE) or "Ivy's default repository"


def retrieve(sizes: Mapping[str, int], folder: Path, java: Java) -> Path:
    """Download jars without their dependencies. Return the folder of ``<name>-<version>.jar``.

    ``sizes`` are in bytes, by ``group:name:version``. Ivy writes only into ``folder``, which
    must not exist yet. Ivy's cache is also in this folder, because the cache of an earlier call may
    contain failed downloads. The progress is shown on standard error. Raise ``Fatal`` if a jar is
    not available.
    """
    folder.mkdir(parents=True, mode=0o700)
    (folder / "ivy.xml").write_text(_descriptor(sizes))
    (folder / "settings.xml").write_text(_settings())
    # Arguments are in a file, because the list of processes must not show a proxy's password.
    (folder / "java.args").write_text(_java_arguments())
    command: list[str | Path] = [java.executable, f"@{folder / 'java.args'}", "-jar", _jar()]
    command += ["-settings", folder / "settings.xml", "-ivy", folder / "ivy.xml"]
    command += ["-cache", folder / "cache", "-types", "jar", "bundle"]  # OSGi bundles are jars
    command += ["-retrieve", folder / "jars" / "[artifact]-[revision].[ext]"]
    process = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output = _show(process.stdout or (), sizes)
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    if code != 0:
        log = cache_home() / "ivy.log"
        write_whole(log, "\n".join(output).encode())
        raise Fatal(
            f"Ivy could not download {len(sizes)} jars from {repository()}: {_why(output)}. Behind "
            "a proxy, set HTTPS_PROXY; to use a mirror of a Maven repository, set "
            f"{REPOSITORY_VARIABLE} to its address. Ivy's whole output: {log}"
        )
    return folder / "jars"


def pyspark_jars() -> Path | None:
    """Return PySpark's folder of jars, or None if PySpark is not installed.

    PySpark is not imported, because that takes a second.
    """
    spec = find_spec("pyspark")
    return Path(spec.origin).parent / "jars" if spec and spec.origin else None


def _jar() -> Path:
    """Return the path of Ivy's jar."""
    folder = pyspark_jars()
    if found := folder and next(folder.glob("ivy-*.jar"), None):
        return found
    raise Fatal(
        "Ivy comes with PySpark, which is missing: install headrace again with its extra `sandbox`"
    )


def _descriptor(coordinates: Iterable[str]) -> str:
    """Return an ivy.xml with only these jars. ``master`` is a Maven module's own artifact."""
    dependency = '<dependency org="{}" name="{}" rev="{}" conf="default->master"/>'
    return (
        '<ivy-module version="2.0"><info organisation="headrace" module="jars"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        f"{''.join(dependency.format(*jar.split(':')) for jar in coordinates)}"
        "</dependencies></ivy-module>"
    )


def _settings() -> str:
    """Return an ivysettings.xml with one Maven repository: Ivy's default, or the user's.

    Ivy's default settings would also use ``~/.ivy2``.
    """
    address = os.environ.get(REPOSITORY_VARIABLE, "")
    if address and not re.match(r"(https?|file):/", address):
        raise InvalidSpec(
            f"{REPOSITORY_VARIABLE} is {address!r}: it has to be the address of a Maven "
            "repository, which begins with https://, http:// or file:///"
        )
    root = f"root={quoteattr(address)}" if address else ""
    return (
        '<ivysettings><property name="ivy.maven.lookup.sources" value="false"/>'
        '<property name="ivy.maven.lookup.javadoc" value="false"/>'
        '<settings defaultResolver="maven"/>'
        f'<resolvers><ibiblio name="maven" m2compatible="true" {root}/></resolvers></ivysettings>'
    )


def _java_arguments() -> str:
    """Return the properties of proxies in the syntax of Java's argument files."""
    properties = [f"-D{name}={value}" for name, value in proxy_properties(os.environ).items()]
    escaped = [each.replace("\\", "\\\\").replace('"', '\\"') for each in properties]
    return "".join(f'"{each}"\n' for each in escaped)


def _show(output: Iterable[bytes], sizes: Mapping[str, int]) -> list[str]:
    """Show the progress of Ivy until it ends, and return the lines of its output."""
    console = Console(stderr=True)
    total = sum(sizes.values())
    console.print(
        f"Downloading {len(sizes)} jars ({total / 1e6:.0f} MB) from {repository()}, once",
        highlight=False,
        soft_wrap=True,
    )
    lines = []
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task("resolving", total=total)
        for line in output:
            lines.append(line.decode(errors="replace").rstrip())
            if fetched := re.search(r"\[SUCCESSFUL ] (\S+)#(\S+);(\S+)!", lines[-1]):
                size = sizes[":".join(fetched.groups())]
                progress.update(task, description=fetched[2], advance=size)
            elif found := re.match(r"\s*found \S+#(\S+?);", lines[-1]):
                progress.update(task, description=f"resolving {found[1]}")
    return lines


def _why(output: Sequence[str]) -> str:
    """Return the causes of a failure, each with the first affected address, or the missing jars."""
    causes: dict[str, str] = {}
    for line in output:
        if failed := re.match(r"\s*Server access error at url (\S+) \((.+)\)$", line):
            causes.setdefault(failed[2], f"{failed[1]}: {failed[2]}")
        elif failed := re.match(r"\s*(Host \S+ not found|\[FAILED.+)", line):
            causes.setdefault(failed[1], failed[1])
    absent = re.findall(r"^\s*:: (\S+: not found)$", "\n".join(output), re.MULTILINE)
    return "; ".join(list(causes.values())[:3] or absent or output[-1:])


class JarSet(StrEnum):
    """Sets of jars by their purpose. Each is a table of ``jars.toml``."""

    KAFKA_BROKER = "kafka-broker"
    SPARK_KAFKA = "spark-kafka"
    MIRROR_MAKER = "mirror-maker"


@dataclass(frozen=True)
class Jar:
    """Pinned file of a Maven repository."""

    group: str
    name: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def coordinates(self) -> str:
        """Maven coordinates of the jar."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file_name(self) -> str:
        """Name of the file in a Maven repository."""
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> Path:
        """Path of the jar after the download."""
        return cache_home() / "jars" / self.file_name

    def is_at(self, path: Path) -> bool:
        """Return True if the content of the file at ``path`` is this jar."""
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest() == self.sha256


@cache
def pinned(jar_set: JarSet) -> tuple[Jar, ...]:
    """Return the jars of a set from ``jars.toml``."""
    return read_pins(files(__package__).joinpath("jars.toml").read_text())[jar_set]


def read_pins(text: str) -> dict[str, tuple[Jar, ...]]:
    """Parse the sets of jars in a file such as ``jars.toml``."""
    found: dict[str, tuple[Jar, ...]] = {}
    for name, table in tomllib.loads(text).items():
        pins = []
        for coordinates, facts in table.items():
            group, artifact, version = coordinates.split(":")
            pins.append(Jar(group, artifact, version, facts["sha256"], facts["bytes"]))
        found[name] = tuple(pins)
    return found


def missing(*jar_sets: JarSet) -> tuple[Jar, ...]:
    """Return the jars of these sets that must be downloaded, including damaged ones."""
    return _missing(jar for jar_set in jar_sets for jar in pinned(jar_set))


def _missing(jars: Iterable[Jar]) -> tuple[Jar, ...]:
    return tuple(jar for jar in dict.fromkeys(jars) if not jar.is_at(jar.path))


def jars(jar_set: JarSet, java: Java | None = None) -> tuple[Path, ...]:
    """Return the files of a set of jars. Download missing ones first, as ``fetched`` does."""
    return fetched(pinned(jar_set), java)


def fetched(jars: Sequence[Jar], java: Java | None = None) -> tuple[Path, ...]:
    """Return the files of jars. Download missing ones first.

    Ivy downloads them. It runs in ``java``, or in a Java that is found on this machine. If no jar
    is missing, no JVM is started. Processes that need the same jars wait for the first of them.
    Raise ``Fatal`` if a jar is not available or differs from the pinned one.
    """
    if _missing(jars):
        with file_lock(cache_home() / "jars.lock"):
            if absent := _missing(jars):  # another process may have downloaded them
                _fetch(absent, java or find_java())
    return tuple(jar.path for jar in jars)


def _fetch(absent: Sequence[Jar], java: Java) -> None:
    """Download jars into a working folder, verify them, and then move them into the cache."""
    work = cache_home() / "ivy"
    shutil.rmtree(work, ignore_errors=True)  # left by a killed process
    try:
        fetched = retrieve({jar.coordinates: jar.size_bytes for jar in absent}, work, java)
        for jar in absent:
            if not jar.is_at(fetched / jar.file_name):
                raise Fatal(
                    f"{jar.coordinates} as downloaded from {repository()} is not the jar that "
                    f"headrace requires: its SHA-256 is not {jar.sha256}. Nothing was stored. "
                    "Ask the operator of that repository, or of a proxy in between, why"
                )
        for jar in absent:
            jar.path.parent.mkdir(parents=True, exist_ok=True)
            (fetched / jar.file_name).replace(jar.path)
    finally:
        shutil.rmtree(work, ignore_errors=True)
