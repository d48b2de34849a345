"""Progress of a long step: on a terminal one line that changes, in a file a line now and then."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

EVERY_S = 15.0
"""Seconds between two lines in a file.

A reader of the log sees that a long step continues, and the step has only a few lines.
"""


@contextmanager
def progress(console: Console, doing: str) -> Iterator[Callable[[str], None]]:
    """Show ``doing`` and for how long; call the yielded function with the progress.

    A file gets its lines also while nothing is reported: Go links for a minute without a message,
    for example. The end is also a line, unless the block raised.
    """
    began = time.monotonic()

    def line(how_far: str) -> str:
        return f"{doing}: {how_far}, {time.monotonic() - began:.0f} s"

    if console.is_terminal:
        with console.status(doing) as status:
            yield lambda how_far: status.update(line(how_far))
    else:
        console.print(f"{doing} ...", soft_wrap=True, highlight=False)
        latest, ended = "still working", threading.Event()

        def report(how_far: str) -> None:
            nonlocal latest
            latest = how_far

        def print_lines() -> None:
            while not ended.wait(EVERY_S):
                console.print(line(latest), soft_wrap=True, highlight=False)

        printing = threading.Thread(target=print_lines, daemon=True)
        printing.start()
        try:
            yield report
        finally:
            ended.set()
            printing.join()
    console.print(line("done"), soft_wrap=True, highlight=False)
