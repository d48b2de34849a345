"""Structured logs: one line for each event, on standard error, with the object of the event.

At the level INFO, the log of a flow usually fits on a screen. Bind the object once and keep the
logger: ``log = get_logger(__name__).bind(flow="orders", task="orders-source-3")``.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from headrace.errors import InvalidSpec

# structlog imports rich where it is installed, to draw stack traces on a terminal. headrace prints
# them as text, and importing rich takes a fifteenth of a driver's start.
_LEFT_OUT: dict[str, Any] = {} if "rich" in sys.modules else {"rich": None}
sys.modules.update(_LEFT_OUT)

import structlog  # noqa: E402

for _name in _LEFT_OUT:
    del sys.modules[_name]

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMATS = ("logfmt", "json")
_STDERR = 2
_NUMBERS = {
    **{level.lower(): logging.getLevelNamesMapping()[level] for level in LEVELS},
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""Numbers of the log levels, by the name of the logger's method, such as ``warning``."""
LEVEL_VARIABLE = "HEADRACE_LOG_LEVEL"
FORMAT_VARIABLE = "HEADRACE_LOG_FORMAT"
_COMMAND = "headrace"
"""Name at the start of messages for the user, where other log lines name a module."""


class _Level:
    """Log level of the process. Loggers are bound once, so they read the level at every event."""

    default = "INFO"
    configured = "INFO"
    now = "INFO"
    number = logging.INFO


class _Format:
    """Format of the process's log, read at every event."""

    default = "logfmt"
    render: structlog.typing.Processor


def configure(
    level: str | None = None, stream: TextIO | None = None, format: str | None = None
) -> None:
    """Write events from ``level`` on to ``stream``, in one of ``FORMATS``.

    The default level is ``HEADRACE_LOG_LEVEL``, or INFO. The default format is
    ``HEADRACE_LOG_FORMAT``, or logfmt. Raise ``InvalidSpec`` for an unknown level or format.
    """
    name = level or os.environ.get(LEVEL_VARIABLE) or "INFO"
    _Level.default = _Level.configured = set_level(name)
    form = format or os.environ.get(FORMAT_VARIABLE) or FORMATS[0]
    if form not in FORMATS:
        raise InvalidSpec(f"{FORMAT_VARIABLE}: {form!r} is no format; use {', '.join(FORMATS)}")
    _Format.default, _Format.render = form, _renderer(form)
    structlog.configure(
        processors=[
            _drop_below_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        # The current standard error: code that replaces it (a test, a live view) gets the lines.
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,
    )


def override(level: str | None, format: str | None) -> None:
    """Override level and format; None restores the configured one.

    Repeating a level does not change a level that was set since. Raise ``InvalidSpec``.
    """
    wanted = (level or _Level.default).upper()
    if wanted != _Level.configured:
        _Level.configured = set_level(wanted)
    _Format.render = _renderer(format or _Format.default)


def is_json() -> bool:
    """Return whether the configured format is JSON."""
    return _Format.default == "json"


def message(sentence: str) -> str:
    """Return a message for the user as a line of the configured format."""
    if not is_json():
        return f"{_COMMAND}: {sentence}"
    event = {"event": sentence, "level": "error", "module": _COMMAND}
    return json.dumps(event | {"timestamp": datetime.now(UTC).isoformat()})


def messages_in(text: str) -> list[str]:
    """Return the messages for the user that the text of a log contains, in either format."""
    found = []
    for line in text.splitlines():
        if line.startswith(f"{_COMMAND}: "):
            found.append(line.removeprefix(f"{_COMMAND}: "))
        elif f'"module": "{_COMMAND}"' in line:
            with suppress(ValueError, KeyError):
                found.append(json.loads(line)["event"])
    return found


def set_level(name: str) -> str:
    """Set the log level, and return it in capitals. Raise ``InvalidSpec`` for an unknown level."""
    level = name.upper()
    if level not in LEVELS:
        raise InvalidSpec(f"{LEVEL_VARIABLE}: {name!r} is no level; use {', '.join(LEVELS)}")
    _Level.now, _Level.number = level, logging.getLevelNamesMapping()[level]
    return level


def toggle_debug() -> str:
    """Set the level DEBUG, or the configured level if it is DEBUG now. Return the new level."""
    return set_level(_Level.configured if _Level.now == "DEBUG" else "DEBUG")


def follow_signals() -> None:
    """Let USR1 set the level DEBUG, and a second USR1 the configured level.

    QUIT prints the stacks of all threads, as it does in Java. So does an abort in a client library,
    before the process ends.
    """
    faulthandler.enable(_STDERR)
    faulthandler.register(signal.SIGQUIT, _STDERR)
    log = get_logger(__name__)
    signal.signal(signal.SIGUSR1, lambda *_: log.warning("log level", is_now=toggle_debug()))


def lost_lines() -> str:
    """Return how many lines were lost and why, or an empty text if all lines were written."""
    return f"{_Lines.lost} lines of the log were lost: {_Lines.why}" if _Lines.lost else ""


class _Lines:
    """Writer of lines.

    If the disk is full, lines are lost. No error is raised, because a flow can work without a log.
    """

    lost, why = 0, ""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        """Write a line."""
        try:
            print(message, file=self._stream or sys.stderr, flush=True)
        except OSError as error:
            _Lines.lost, _Lines.why = _Lines.lost + 1, error.strerror or str(error)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of a module; ``name`` is its ``__name__``."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return logger


def _drop_below_level(
    _: Any, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if _NUMBERS.get(method, logging.ERROR) < _Level.number:
        raise structlog.DropEvent
    return event


def _render(
    logger: Any, method: str, event: structlog.typing.EventDict
) -> structlog.typing.ProcessorReturnValue:
    return _Format.render(logger, method, event)


def _renderer(format: str) -> structlog.typing.Processor:
    if format == "json":
        return structlog.processors.JSONRenderer(default=str)
    return structlog.processors.LogfmtRenderer(
        key_order=["timestamp", "level", "event"], drop_missing=True
    )
