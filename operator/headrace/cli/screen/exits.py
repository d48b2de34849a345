"""Exit codes of every command; documented in ``docs/cli.md``."""

from enum import IntEnum

from headrace.errors import GaveUp, HeadraceError, InvalidSpec


class Exit(IntEnum):
    """What a command's end means."""

    OK = 0
    """Done; for ``verify``: Passed."""
    FAILED = 1
    """It went wrong; for ``verify``: Failed."""
    INCONCLUSIVE = 2
    """Nobody knows: the time given ran out; for ``verify``: Inconclusive."""
    USAGE = 3
    """A flag, a manifest or the environment is wrong, and the message says what to change."""


def exit_for(error: HeadraceError) -> Exit:
    """The code that an error of ours ends a command with."""
    match error:
        case InvalidSpec():
            return Exit.USAGE
        case GaveUp():
            return Exit.INCONCLUSIVE
        case _:
            return Exit.FAILED
