"""Exit codes of all commands. ``docs/cli.md`` documents them."""

from enum import IntEnum

from headrace.errors import GaveUp, HeadraceError, InvalidSpec, NotRunning, Unreachable


class Exit(IntEnum):
    """Exit code of a command."""

    OK = 0
    """Success, or nothing to do. The verdict of ``verify`` is Passed."""
    FAILED = 1
    """Failed or refused. The verdict of ``verify`` is Failed."""
    INCONCLUSIVE = 2
    """The time limit was reached. ``verify`` has no verdict, or the verdict is Inconclusive."""
    USAGE = 3
    """A flag, a manifest or the environment is wrong. The message says what to change."""
    UNREACHABLE = 4
    """The flow or sandbox does not run, or a cluster does not respond."""


def exit_for(error: HeadraceError) -> Exit:
    """Return the exit code of a command that raises this error."""
    match error:
        case NotRunning() | Unreachable():
            return Exit.UNREACHABLE
        case InvalidSpec():
            return Exit.USAGE
        case GaveUp():
            return Exit.INCONCLUSIVE
        case _:
            return Exit.FAILED
