"""Readiness, and the stop that ends it."""

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from mcpfleet.process.lifecycle import Health, Stopping


def health(stopping: Stopping | None = None) -> Health:
    return Health(stopping or Stopping(60), structlog.get_logger())


def test_a_process_that_has_said_nothing_is_not_ready() -> None:
    """A probe may come before the service has begun; it reads why."""
    new = health()
    assert not new.ready
    assert [condition.ok for condition in new.conditions.values()] == [False]


def test_ready_when_all_conditions_hold() -> None:
    """One that does not is enough to be unready, and ready may come back."""
    with capture_logs():
        some = health()
        some.set("nats", True)
        seen = [(some.ready, "")]
        some.set("snapshot", False, "no catalog answers")
        seen.append((some.ready, some.conditions["snapshot"].why))
        some.set("snapshot", True, "no reason any more")
        seen.append((some.ready, some.conditions["snapshot"].why))
    assert seen == [(True, ""), (False, "no catalog answers"), (True, "")]


def test_a_stopping_process_is_not_ready() -> None:
    """It goes on serving what it has, but nothing new should come."""
    stopping = Stopping(60)
    with capture_logs():
        some = health(stopping)
        some.set("nats", True)
        stopping.set()
        assert not some.ready


def test_each_change_is_one_line() -> None:
    """Said when it turns, not each time it is told; the line names the condition."""
    with capture_logs() as lines:
        some = health()
        for _ in range(2):
            some.set("nats", True)
        for _ in range(2):
            some.set("nats", False, "no answer for 2 s")
    assert [line["event"] for line in lines] == ["ready", "not ready"]
    assert (lines[1]["condition"], lines[1]["why"]) == ("nats", "no answer for 2 s")


async def test_stopping_is_waited_for_and_bounds_what_is_left() -> None:
    """Before it is set time is not bounded; then it runs down, and setting it again changes nothing."""
    stopping = Stopping(60)
    assert stopping.left() == float("inf")
    async with asyncio.TaskGroup() as group:
        group.create_task(stopping.wait())
        stopping.set()
    left = stopping.left()
    assert 59 < left <= 60
    stopping.set()
    assert stopping.left() <= left


async def test_nothing_is_left_after_the_last_deadline() -> None:
    """Never less than nothing: it is used as a time-out."""
    stopping = Stopping(0)
    stopping.set()
    assert stopping.left() == pytest.approx(0, abs=1e-9)
