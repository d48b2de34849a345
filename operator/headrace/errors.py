"""The one hierarchy of errors.

A message says what was tried, on what, and what to do about it: it is shown to people as it is.
"""


class HeadraceError(Exception):
    """Anything headrace raises on purpose."""


class Retriable(HeadraceError):
    """The same attempt may succeed later: a broker is unreachable, or a leader moved."""


class Unreachable(Retriable):
    """A cluster, its API server, or a run of this machine did not answer."""


class Fatal(HeadraceError):
    """Retrying cannot help until a user changes something."""


class InvalidSpec(Fatal):
    """A user's input is wrong: a manifest, a flag, an environment variable."""


class NotRunning(InvalidSpec):
    """The flow, test or sandbox that a command names does not run."""


class GaveUp(HeadraceError):
    """The time that was given is over, and it is not known how things stand."""


def from_exception(error: Exception) -> HeadraceError:
    """Return any error as one that can be shown to users.

    An ``OSError`` (a full disk, a file without permissions) is the machine's. Any other error that
    is not ours is a defect of headrace.
    """
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return Retriable(f"{file}{error.strerror or error}")
    return HeadraceError(f"internal error, please report it: {error!r}")
