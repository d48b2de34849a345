"""Files of this machine: folders of cache and state, whole writes and locks."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write ``path`` so that another process sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise


def cache_home() -> Path:
    """Jars, the JRE's launcher, trust stores: all of it can be deleted and comes back by itself."""
    return _base("XDG_CACHE_HOME", ".cache") / "headrace"


def state_home() -> Path:
    """Sandboxes: which brokers run, their logs and their data."""
    return _base("XDG_STATE_HOME", ".local/state") / "headrace"


def _base(variable: str, default: str) -> Path:
    """Return an XDG base directory; the specification says to ignore a relative one."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / default


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Wait for the lock of ``path``, and hold it; the kernel releases it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
