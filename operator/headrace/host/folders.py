"""Where headrace keeps files of its own: the XDG base directories."""

import os
from pathlib import Path


def cache_home() -> Path:
    """Jars, the JRE's launcher, trust stores: all of it can be deleted and comes back by itself."""
    return _base("XDG_CACHE_HOME", ".cache") / "headrace"


def state_home() -> Path:
    """Sandboxes: which brokers run, their logs and their data."""
    return _base("XDG_STATE_HOME", ".local/state") / "headrace"


def _base(variable: str, default: str) -> Path:
    """An XDG base directory; the specification says to pass over one that is not absolute."""
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / default
