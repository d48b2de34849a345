"""Runs programs in images as a restricted pod would: their user, a read-only root, no rights."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from images.catalogue import Image
from images.engine import Docker, Engine, find_engine

SHARED = "/tmp/shared"
"""Where a folder of the machine appears in the container."""

# A container runtime, where there is none: $1 is the image's root, $2 the folder to share, $3 the
# folders that can be written. The mounts are the process' own and go with it.
_CONTAINER = f"""
set -e
root=$1 shared=$2 writable=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
touch "$root/etc/hosts"
mount --bind /etc/hosts "$root/etc/hosts"
for folder in $writable; do mount -t tmpfs -o mode=1777 tmpfs "$root$folder"; done
mkdir "$root{SHARED}"
mount --bind "$shared" "$root{SHARED}"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs chroot --userspec=10001:10001 "$root" "$@"
"""


@contextmanager
def container(
    image: Image,
    command: Sequence[str],
    shared: Path,
    *,
    env: Mapping[str, str] | None = None,
    writable: Sequence[str] = ("/tmp",),
) -> Iterator["subprocess.Popen[str]"]:
    """A process in the machine's network, ended with the block; what it says is in ``stdout``."""
    shared.chmod(0o777)
    engine = find_engine()
    if isinstance(engine, Docker):
        name = f"headrace-{os.getpid()}-{image.name}"
        begin = [engine.program, "run", "--rm", "--name", name, "--read-only", "--network=host"]
        begin += ["--cap-drop=ALL", "--security-opt=no-new-privileges"]
        begin += [f"--tmpfs={folder}:exec,mode=1777" for folder in writable]
        begin += [
            f"--volume={shared}:{SHARED}",
            *(f"--env={k}={v}" for k, v in (env or {}).items()),
        ]
        end = [engine.program, "rm", "--force", name]
        full = [*begin, f"--entrypoint={command[0]}", image.tag, *command[1:]]
        with _process(full, end) as process:
            yield process
        return
    made = _told(engine, "from", image.tag)
    try:
        root = _told(engine, "mount", made)
        told = _told(
            engine, "inspect", "--format", "{{range .OCIv1.Config.Env}}{{println .}}{{end}}", made
        )
        variables = [*told.split("\n"), *(f"{key}={value}" for key, value in (env or {}).items())]
        full = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            _CONTAINER,
            "sh",
        ]
        full += [root, str(shared), " ".join(writable), "env", "-i", "-C", "/tmp", *variables]
        with _process([*full, *command], None) as process:
            yield process
    finally:
        _told(engine, "rm", made)


@contextmanager
def _process(
    command: Sequence[str], end: Sequence[str] | None
) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if end and process.poll() is None:
            subprocess.run(end, capture_output=True, check=False)
        # The whole session: a program that changed its user outlives unshare's --kill-child.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _told(engine: Engine, *arguments: str) -> str:
    command = [engine.program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
