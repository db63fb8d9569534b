"""A line at the end of a run of these tests."""

from __future__ import annotations

import pytest

from tests.kit import jaeger


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where traces were asserted: who has no Jaeger should know that none was asked."""
    where = jaeger.binary()
    said = f"at a real Jaeger, {where}" if where else "at the suite's own receiver: no `jaeger` is on the path"
    terminalreporter.write_line(f"traces were asserted {said}")
