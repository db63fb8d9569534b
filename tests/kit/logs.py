"""A logger whose lines a test reads."""

from __future__ import annotations

import structlog
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger


def captured(capture: LogCapture) -> FilteringBoundLogger:
    """A logger of all levels that keeps its lines in `capture`."""
    wrapper = structlog.make_filtering_bound_logger("debug")
    logger: FilteringBoundLogger = structlog.wrap_logger(None, processors=[capture], wrapper_class=wrapper)
    return logger
