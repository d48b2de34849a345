"""Content, format and level of logs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO

import pytest
import structlog

from headrace import logs
from headrace.errors import InvalidSpec


@pytest.fixture
def stream() -> Iterator[StringIO]:
    yield StringIO()
    logs.configure()
    structlog.reset_defaults()


def test_json_is_a_document_a_line(stream: StringIO) -> None:
    logs.configure("INFO", stream, "json")
    logs.get_logger("here").bind(flow="orders").warning("driver lost", units=3)
    found = json.loads(stream.getvalue())
    assert found.pop("timestamp")
    expected = {"module": "here", "level": "warning", "event": "driver lost"}
    assert found == {**expected, "flow": "orders", "units": 3}


def test_the_variable_sets_the_format_of_a_process(
    stream: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LOG_FORMAT", "json")
    logs.configure(stream=stream)
    logs.get_logger("here").info("one")
    assert json.loads(stream.getvalue())["event"] == "one"
    monkeypatch.setenv("HEADRACE_LOG_FORMAT", "xml")
    with pytest.raises(InvalidSpec, match="HEADRACE_LOG_FORMAT: 'xml' is no format; use logfmt, "):
        logs.configure()
    monkeypatch.delenv("HEADRACE_LOG_FORMAT")


@pytest.mark.parametrize("format", logs.FORMATS)
def test_messages_for_the_user_are_found_in_a_log_of_either_format(
    stream: StringIO, format: str
) -> None:
    logs.configure("INFO", stream, format)
    logs.get_logger("headrace.here").error("an event")
    text = f"{stream.getvalue()}{logs.message('no broker: east:9092')}\nan end"
    assert logs.messages_in(text) == ["no broker: east:9092"]
    if format == "json":
        assert json.loads(logs.message("x"))["event"] == "x"


def test_a_driver_starts_without_what_draws_on_terminals() -> None:
    code = "import sys; from headrace.cli import driver; print('rich' in sys.modules); import rich"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="HEADRACE_LOG_LEVEL: 'verbos' is no level; use DEBUG, "):
        logs.configure("verbos")


def test_the_level_changes_for_loggers_that_were_bound_before(stream: StringIO) -> None:
    logs.configure("WARNING", stream)
    log = logs.get_logger("here").bind(flow="orders")
    log.info("one")
    assert logs.toggle_debug() == "DEBUG"
    log.debug("two")
    assert logs.toggle_debug() == "WARNING"
    log.info("three")
    assert [line for line in ("one", "two", "three") if f"event={line} " in stream.getvalue()] == [
        "two"
    ]


def test_quit_prints_the_stacks_of_all_threads_and_does_not_end_the_process() -> None:
    program = (
        "import os, signal; from headrace import logs; logs.follow_signals(); "
        "os.kill(os.getpid(), signal.SIGQUIT); print('it lives')"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "it lives\n"
    assert 'File "<string>", line 1 in <module>' in done.stderr


def test_level_and_format_are_overridden_and_given_back_while_loggers_live(
    stream: StringIO,
) -> None:
    logs.configure("INFO", stream)
    log = logs.get_logger("here").bind(flow="orders")
    logs.override("DEBUG", "json")
    log.debug("one")
    logs.set_level("ERROR")  # as a signal does
    logs.override("DEBUG", "json")
    log.warning("two")
    logs.override(None, None)
    log.debug("three")
    log.info("four")
    first, last = stream.getvalue().splitlines()
    assert json.loads(first)["event"] == "one"
    assert "event=four" in last


def test_a_full_disk_loses_lines_and_nothing_else() -> None:
    """The number of lost lines is a property of the process, so it is read in a new one."""
    program = (
        "from headrace import logs; logs.configure('INFO', open('/dev/full', 'w')); "
        "logs.get_logger('here').info('one'); logs.get_logger('here').exception('two'); "
        "print(logs.lost_lines())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "2 lines of the log were lost: No space left on device\n"
