"""Log of kopf in the format of headrace's log."""

import logging

import structlog


class _ToStructlog(logging.Handler):
    """Logs kopf's lines in the format of headrace's log."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(module=record.name)
        error = record.exc_info and record.exc_info[1]
        # Errors of kopf's own types come from the API server. Their message is sufficient.
        known = error is not None and type(error).__module__.startswith("kopf.")
        trace = None if known else record.exc_info or None
        logger.log(record.levelno, record.getMessage(), exc_info=trace)


def quiet_kopf() -> None:
    """Let kopf log only warnings and errors."""
    for name in ("kopf", "asyncio", "aiohttp"):
        logger = logging.getLogger(name)
        logger.handlers = [_ToStructlog()]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
