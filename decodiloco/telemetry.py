"""Logs: one JSON object a line on stderr in a pipe, readable lines on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def configure(level: str = "info", **bound: Any) -> None:
    """Sets up logging for this process; every line carries what is `bound`, such as run and id."""
    pretty = sys.stderr.isatty()
    drawn: Any = (
        structlog.dev.ConsoleRenderer()
        if pretty
        else structlog.processors.JSONRenderer(sort_keys=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _in_order,
            drawn,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(**bound)


def _in_order(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> dict[str, Any]:
    """When, how grave and what come first: people read these lines too."""
    first = {key: line[key] for key in ("timestamp", "level", "event") if key in line}
    return {**first, **line}


def log(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of one part; its lines carry `part`. It never writes to stdout."""
    if not structlog.is_configured():  # a loop of somebody's own around a session
        configure()
    logger: structlog.stdlib.BoundLogger = structlog.get_logger().bind(part=name)
    return logger
