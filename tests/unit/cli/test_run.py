"""Parts of ``headrace run`` that need no broker."""

import json
import os
import pty

import pytest
import structlog

from headrace import logs
from headrace.api import ReplicationFlowStatus, TaskCounts
from headrace.cli.run import is_hung_up, print_summary
from headrace.cli.screen.screen import FlowView


def test_a_terminal_that_was_closed_is_known() -> None:
    ours, theirs = pty.openpty()
    try:
        assert not is_hung_up(theirs)
        os.close(ours)
        assert is_hung_up(theirs)
    finally:
        os.close(theirs)


@pytest.mark.parametrize("format", logs.FORMATS)
def test_lines_for_flows_are_json_if_the_log_is(
    format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are on standard error, which a program can read only if every line is JSON."""
    view = FlowView("orders", ReplicationFlowStatus(tasks=TaskCounts()), [])
    logs.configure(format=format)
    try:
        print_summary([view], 3, "by itself")
    finally:
        logs.configure()
        structlog.reset_defaults()
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)["event"] if format == "json" else line
    assert said.startswith("orders: stopped by itself after 0:00:03")
