"""The one hierarchy of errors.

A message is shown to users unchanged. It says what was tried, on what, and what to do.
"""


class HeadraceError(Exception):
    """Any error that headrace raises on purpose."""


class Retriable(HeadraceError):
    """The same attempt may succeed later: a broker is unreachable, or a leader moved."""


class Unreachable(Retriable):
    """A Kafka cluster, an API server, or a run on this machine did not answer."""


class Fatal(HeadraceError):
    """Retrying cannot help until a user changes something."""


class InvalidSpec(Fatal):
    """A user's input is wrong: a manifest, a flag, an environment variable."""


class NotRunning(InvalidSpec):
    """The flow, test or sandbox that a command names does not run."""


class GaveUp(HeadraceError):
    """The time limit was reached, and the outcome is unknown."""


def from_exception(error: Exception) -> HeadraceError:
    """Return an error that can be shown to users.

    An ``OSError`` (a full disk, a file without permissions) is a problem of the machine. Any other
    error that is not a ``HeadraceError`` is a defect of headrace.
    """
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return Retriable(f"{file}{error.strerror or error}")
    return HeadraceError(f"internal error, please report it: {error!r}")
