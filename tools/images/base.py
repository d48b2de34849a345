"""The base image from its registry, or a stand-in of the same name made from Debian packages."""

import os
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from machine import install, which

from headrace.errors import Fatal
from headrace.host import cache_home
from images.catalogue import BASE
from images.engine import CONSOLE, Docker, Engine

_MMDEBSTRAP = (
    "mmdebstrap",
    "--quiet",
    "--variant=minbase",
    "--include=ca-certificates,netbase,python3,python3-pip,python3-venv,tzdata",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    '--customize-hook=ln -s /usr/bin/python3 "$1/usr/local/bin/python"',
    # From the machine, mmdebstrap copies its name and its name servers.
    '--customize-hook=rm -f "$1/etc/hostname" "$1/etc/resolv.conf"',
    "bookworm",
)
STAND_IN = "dev.headrace.base"
"""Label of it, and so of all images that are made on it."""
_DOCKERFILE = f"""\
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
LABEL {STAND_IN}="stand-in"
CMD ["python3"]
"""


def have_base(engine: Engine) -> None:
    """Provide the base image on this machine. Raises Fatal if it can neither be pulled nor made."""
    # In full: a short name would also be looked for on this machine's own registry.
    name = f"docker.io/library/{BASE}"
    if engine.exists(name):
        return
    CONSOLE.print(f"Pulling the base image {BASE}")
    if (why := engine.pull(name)) is None:
        return
    if not which("mmdebstrap"):
        install(["mmdebstrap"], f"The base image {BASE} cannot be pulled ({why})", CONSOLE)
    CONSOLE.print(
        f"The base image {BASE} cannot be pulled ({why}). A stand-in of that name is made from "
        "Debian's packages: good for tests on this machine, not for a registry"
    )
    tar = _packages()
    with tempfile.TemporaryDirectory(dir=tar.parent) as folder:
        context = Path(folder)
        os.link(tar, context / "base.tar")
        (context / "Dockerfile").write_text(_DOCKERFILE)
        isolation = () if isinstance(engine, Docker) else ("--isolation", "chroot")
        engine.run("build" if not isolation else "bud", *isolation, "-t", name, folder)


def _packages() -> Path:
    """Return the stand-in's files as a tar, from the cache if it exists."""
    recipe = sha256("\n".join(_MMDEBSTRAP).encode()).hexdigest()[:16]
    tar = cache_home() / "images" / f"base-{recipe}.tar"
    if not tar.exists():
        CONSOLE.print(f"Fetching its packages with mmdebstrap: one to three minutes, once ({tar})")
        tar.parent.mkdir(parents=True, exist_ok=True)
        unfinished = tar.with_suffix(".part.tar")
        unfinished.unlink(missing_ok=True)
        done = subprocess.run([*_MMDEBSTRAP, str(unfinished)], check=False)
        if done.returncode:
            raise Fatal("mmdebstrap failed; the reason is above")
        unfinished.replace(tar)
    return tar
