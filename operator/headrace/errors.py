"""The one hierarchy of errors.

A message says what was tried, on what, and what to do about it: it is shown to people as it is.
"""


class HeadraceError(Exception):
    """Anything headrace raises on purpose."""


class Retriable(HeadraceError):
    """The same attempt may succeed later: a broker that is away, a leader that moved."""


class Fatal(HeadraceError):
    """Trying again cannot help until somebody changes something."""


class InvalidSpec(Fatal):
    """What a person wrote is wrong: a manifest, a flag, an environment variable."""


class GaveUp(HeadraceError):
    """The time that was given is over, and it is not known how things stand."""
