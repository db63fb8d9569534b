"""The one header line of a message."""

from __future__ import annotations

import time

import pytest

from mcpfleet.bus import header
from mcpfleet.bus.actor import is_fresh
from mcpfleet.bus.header import Sent
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.trace import TraceContext

TRACE = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True)


def test_a_line_is_read_as_it_was_written() -> None:
    before = time.time()
    sent = header.read(header.write(1.5, TRACE, "call", "edge", "p"))
    assert sent is not None
    assert (sent.left, sent.trace, sent.extra) == (1.5, TRACE, ("call", "edge", "p"))
    assert before - 0.001 <= sent.at <= time.time() + 0.001


def test_a_request_outside_of_every_trace_has_none() -> None:
    sent = header.read(header.write(1.0, None))
    assert sent is not None
    assert sent.trace is None


def test_a_malformed_trace_costs_only_the_trace() -> None:
    """M23: ignored, not refused."""
    assert header.read("1 1000 1000 no-trace") == Sent(1.0, 1.0, None, ())


def test_a_newer_sender_may_add_words() -> None:
    sent = header.read(f"{header.write(1.0, None, 'call', 'edge', '-')} later words")
    assert sent is not None
    assert sent.extra[:3] == ("call", "edge", "-")


@pytest.mark.parametrize(
    "line",
    [
        None,
        "",
        "1",
        "1 1000",
        "1 1000 1000",
        "2 1000 1000 -",
        "1 soon 1000 -",
        "1 1000 now -",
        "1 nan 1000 -",
        "1 1.5 1 -",
        f"1 {'9' * 400} 1 -",
        f"1 1 {'9' * 400} -",
    ],
)
def test_what_no_process_of_ours_writes_is_no_line(line: str | None) -> None:
    assert header.read(line) is None


@pytest.mark.parametrize(
    ("age", "fresh"),
    [(0.0, True), (2.9, True), (3.1, False), (60.0, False), (-0.9, True), (-1.1, False)],
)
def test_a_request_is_started_within_two_seconds_and_one_more_for_clocks_that_differ(age: float, fresh: bool) -> None:
    """Later its sender may have told somebody that it did not run; dated ahead, it could be old when it looks new."""
    assert is_fresh(Sent(5.0, time.time() - age, None, ()), ProcessSettings()) is fresh
