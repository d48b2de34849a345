"""Folders for cache and state, atomic writes, and file locks."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write ``path`` atomically: other processes see the old or the new content, never a part."""
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
    """Return the folder of files that are created again if they are deleted.

    These are jars, launchers of the JRE, and trust stores.
    """
    return _base("XDG_CACHE_HOME", ".cache") / "headrace"


def state_home() -> Path:
    """Return the folder of sandboxes, with their brokers' state, logs and data."""
    return _base("XDG_STATE_HOME", ".local/state") / "headrace"


def _base(variable: str, default: str) -> Path:
    """Return an XDG base directory. A relative path is ignored, as the specification requires."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / default


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Wait for the lock of ``path``, and hold it during the block.

    The kernel releases the lock if the process ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
