"""Settings of the building machine that a build needs, and that no image may keep."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.toolchain.java import ca_bundle

_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")


@contextmanager
def secrets() -> Iterator[Mapping[str, Path]]:
    """Yield files for ``--secret``: pip's index settings, and this machine's authorities."""
    with tempfile.TemporaryDirectory() as folder:
        pip = Path(folder) / "pip.conf"
        pip.touch(mode=0o600)
        pip.write_text(_pip_conf())
        bundle = ca_bundle()
        yield {"pip.conf": pip} | ({"ca.pem": bundle} if bundle else {})


def _pip_conf() -> str:
    """Return settings of files and of the environment; later ones in pip's list take precedence."""
    output = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    found: dict[str, str] = {}
    for line in output.splitlines():
        name, _, value = line.partition("=")
        key = name.rsplit(".", 1)[-1]
        if key in _KEYS:
            found[key] = value.strip("'\"").replace("\\n", "\n  ")
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in found.items())
