"""Structured logs: one line an event, on standard error, with the object it is about.

INFO tells the story of a flow in a screenful. Bind the object once and keep the logger:
``log = get_logger(__name__).bind(flow="orders", task="orders-source-3")``.
"""

import logging
import os
import sys
from typing import TextIO

import structlog


def configure(level: str | None = None, stream: TextIO | None = None) -> None:
    """Write events from ``level`` on (default: ``HEADRACE_LOG_LEVEL``, else INFO) to ``stream``."""
    name = (level or os.environ.get("HEADRACE_LOG_LEVEL") or "INFO").upper()
    threshold = logging.getLevelNamesMapping().get(name, logging.INFO)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], drop_missing=True
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        # The standard error of the moment: whoever swaps it (a test, a live view) gets the lines.
        logger_factory=lambda *_: structlog.PrintLogger(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """The logger of a module; ``name`` is its ``__name__``."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(module=name)
    return logger
