"""Ivy, which PySpark brings along, fetches jars from a Maven repository."""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from headrace.errors import Fatal, InvalidSpec
from headrace.host import cache_home, spawn, write_whole
from headrace.toolchain.java import Java
from headrace.toolchain.proxies import proxy_properties

REPOSITORY_VARIABLE = "HEADRACE_MAVEN_REPOSITORY"


def repository() -> str:
    """The repository that jars come from, in words for a person."""
    return os.environ.get(REPOSITORY_VARIABLE) or "Ivy's default repository"


def retrieve(sizes: Mapping[str, int], folder: Path, java: Java) -> Path:
    """Download jars and nothing that they depend on; the folder of ``<name>-<version>.jar``.

    ``sizes`` in bytes, by ``group:name:version``. All files of Ivy are in ``folder``, also its
    cache, as that remembers failures. Shows on standard error what it downloads. Raises Fatal when
    a jar cannot be had.
    """
    folder.mkdir(parents=True, mode=0o700)
    (folder / "ivy.xml").write_text(_descriptor(sizes))
    (folder / "settings.xml").write_text(_settings())
    # In a file of arguments, as a proxy's password is not for the list of processes.
    (folder / "java.args").write_text(_java_arguments())
    command: list[str | Path] = [java.executable, f"@{folder / 'java.args'}", "-jar", _jar()]
    command += ["-settings", folder / "settings.xml", "-ivy", folder / "ivy.xml"]
    command += ["-cache", folder / "cache", "-types", "jar", "bundle"]  # an OSGi bundle is a jar
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


def _jar() -> Path:
    """Ivy's own jar; PySpark is not imported for it, that takes a second."""
    spec = find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else None
    if found := home and next(iter((home / "jars").glob("ivy-*.jar")), None):
        return found
    raise Fatal("Ivy comes with PySpark, which is missing: `pip install 'headrace[sandbox]'`")


def _descriptor(coordinates: Iterable[str]) -> str:
    """ivy.xml: the named jars and nothing else (``master`` is a Maven module's own artifact)."""
    dependency = '<dependency org="{}" name="{}" rev="{}" conf="default->master"/>'
    return (
        '<ivy-module version="2.0"><info organisation="headrace" module="jars"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        f"{''.join(dependency.format(*jar.split(':')) for jar in coordinates)}"
        "</dependencies></ivy-module>"
    )


def _settings() -> str:
    """ivysettings.xml: one Maven repository, Ivy's default or the one that the user named.

    Ivy's own settings would read ``~/.ivy2`` as well.
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
    """The proxies, by the syntax of java's file of arguments."""
    properties = [f"-D{name}={value}" for name, value in proxy_properties(os.environ).items()]
    escaped = [each.replace("\\", "\\\\").replace('"', '\\"') for each in properties]
    return "".join(f'"{each}"\n' for each in escaped)


def _show(output: Iterable[bytes], sizes: Mapping[str, int]) -> list[str]:
    """Show the progress of Ivy until it ends; its output by lines."""
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
    """What went wrong: each cause once, with the first address that met it; else what is absent."""
    causes: dict[str, str] = {}
    for line in output:
        if failed := re.match(r"\s*Server access error at url (\S+) \((.+)\)$", line):
            causes.setdefault(failed[2], f"{failed[1]}: {failed[2]}")
        elif failed := re.match(r"\s*(Host \S+ not found|\[FAILED.+)", line):
            causes.setdefault(failed[1], failed[1])
    absent = re.findall(r"^\s*:: (\S+: not found)$", "\n".join(output), re.MULTILINE)
    return "; ".join(list(causes.values())[:3] or absent or output[-1:])
