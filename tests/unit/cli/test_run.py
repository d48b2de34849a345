"""Parts of ``headrace run`` that need no broker."""

import os
import pty

from headrace.cli.run import is_hung_up


def test_a_terminal_that_was_closed_is_known() -> None:
    ours, theirs = pty.openpty()
    try:
        assert not is_hung_up(theirs)
        os.close(ours)
        assert is_hung_up(theirs)
    finally:
        os.close(theirs)
