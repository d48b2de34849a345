"""The console of commands that print rich's tables."""

from rich.console import Console


def unfolded() -> Console:
    """Return a console that does not fold lines that are piped to a file or a program."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=1000)
