"""Ivy, which PySpark brings along, fetches jars from a Maven repository."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Protocol
from xml.etree import ElementTree as XML

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from headrace.errors import Fatal, InvalidSpec
from headrace.host import cache_home, spawn, write_whole
from headrace.toolchain.java import Java
from headrace.toolchain.proxies import proxy_properties

REPOSITORY_VARIABLE = "HEADRACE_MAVEN_REPOSITORY"


class Module(Protocol):
    """What Ivy has to know of a jar."""

    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102


def repository() -> str:
    """The repository that jars come from, in words for a person."""
    return os.environ.get(REPOSITORY_VARIABLE) or "Ivy's default repository"


def retrieve(modules: Sequence[Module], folder: Path, java: Java) -> Path:
    """Download ``modules`` and nothing that they depend on; the folder of ``<name>-<version>.jar``.

    Everything Ivy writes stays in ``folder``, its cache too: it remembers failures, and they are
    not to outlive the attempt. Says on standard error what it downloads. Raises Fatal when one
    cannot be had.
    """
    folder.mkdir(parents=True, mode=0o700)
    (folder / "ivy.xml").write_bytes(_descriptor(modules))
    (folder / "settings.xml").write_bytes(_settings())
    # In a file of arguments, as a proxy's password is not for the list of processes.
    (folder / "java.args").touch(mode=0o600)
    (folder / "java.args").write_text(
        "".join(f'"-D{name}={_quoted(value)}"\n' for name, value in _properties().items())
    )
    command: list[str | Path] = [java.executable, f"@{folder / 'java.args'}", "-jar", _jar()]
    command += ["-settings", folder / "settings.xml", "-ivy", folder / "ivy.xml"]
    command += ["-cache", folder / "cache", "-types", "jar", "bundle"]  # an OSGi bundle is a jar
    command += ["-retrieve", folder / "jars" / "[artifact]-[revision].[ext]"]
    process = spawn(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        said = _show(process.stdout, modules)
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    if code != 0:
        log = cache_home() / "ivy.log"
        write_whole(log, "\n".join(said).encode())
        raise Fatal(
            f"Ivy could not download {len(modules)} jars from {repository()}: {_why(said)}. Behind "
            "a proxy, set HTTPS_PROXY; to use a mirror of a Maven repository, set "
            f"{REPOSITORY_VARIABLE} to its address. All that Ivy said: {log}"
        )
    return folder / "jars"


def _jar() -> Path:
    """Ivy's own jar; PySpark is not imported for it, that takes a second."""
    spec = find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else None
    if found := home and next(iter((home / "jars").glob("ivy-*.jar")), None):
        return found
    raise Fatal("Ivy comes with PySpark, which is missing: `pip install 'headrace[sandbox]'`")


def _descriptor(modules: Sequence[Module]) -> bytes:
    """ivy.xml: the named jars and nothing else (``master`` is a Maven module's own artifact)."""
    root = XML.Element("ivy-module", version="2.0")
    XML.SubElement(root, "info", organisation="headrace", module="jars")
    XML.SubElement(XML.SubElement(root, "configurations"), "conf", name="default")
    dependencies = XML.SubElement(root, "dependencies")
    for module in modules:
        XML.SubElement(
            dependencies,
            "dependency",
            org=module.group,
            name=module.name,
            rev=module.version,
            transitive="false",
            conf="default->master",
        )
    return XML.tostring(root)


def _settings() -> bytes:
    """ivysettings.xml: one Maven repository, Ivy's default or the one that the user named.

    Ivy's own settings would look into ``~/.ivy2`` as well.
    """
    root = XML.Element("ivysettings")
    XML.SubElement(root, "settings", defaultResolver="maven")
    maven = XML.SubElement(XML.SubElement(root, "resolvers"), "ibiblio", name="maven")
    maven.set("m2compatible", "true")
    if address := os.environ.get(REPOSITORY_VARIABLE):
        if not re.match(r"(https?|file):/", address):
            raise InvalidSpec(
                f"{REPOSITORY_VARIABLE} is {address!r}: it has to be the address of a Maven "
                "repository, which begins with https://, http:// or file:///"
            )
        maven.set("root", address)
    return XML.tostring(root)


def _properties() -> dict[str, str]:
    lookups = {"ivy.maven.lookup.sources": "false", "ivy.maven.lookup.javadoc": "false"}
    return lookups | proxy_properties(os.environ)


def _quoted(value: str) -> str:
    """For java's file of arguments, inside double quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _show(output: IO[bytes], modules: Sequence[Module]) -> list[str]:
    """Show how far Ivy is until it ends; what it said."""
    console = Console(stderr=True)
    sizes = {f"{module.group}#{module.name};{module.version}": module for module in modules}
    total = sum(module.size_bytes for module in modules)
    console.print(
        f"Downloading {len(modules)} jars ({total / 1e6:.0f} MB) from {repository()}, once",
        highlight=False,
        soft_wrap=True,
    )
    said = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("looking up", total=total)
        for line in _lines(output):
            said.append(line)
            if fetched := re.search(r"\[SUCCESSFUL ] (\S+?)!", line):
                module = sizes[fetched[1]]
                progress.update(task, description=module.name, advance=module.size_bytes)
            elif looked_up := re.match(r"\s*found \S+#(\S+?);", line):
                progress.update(task, description=f"looking up {looked_up[1]}")
    return said


def _lines(output: IO[bytes]) -> Iterator[str]:
    for line in output:
        yield line.decode(errors="replace").rstrip()


def _why(said: Sequence[str]) -> str:
    """What went wrong: each cause once, with the first address that met it; else what is absent."""
    causes: dict[str, str] = {}
    for line in said:
        if failed := re.match(r"\s*Server access error at url (\S+) \((.+)\)$", line):
            causes.setdefault(failed[2], f"{failed[1]}: {failed[2]}")
        elif failed := re.match(r"\s*(Host \S+ not found|\[FAILED.+)", line):
            causes.setdefault(failed[1], failed[1])
    absent = re.findall(r"^\s*:: (\S+: not found)$", "\n".join(said), re.MULTILINE)
    return "; ".join(list(causes.values())[:3] or absent or said[-1:])
