"""Observers: what they are told, and that nothing waits for one that sleeps, fails or blocks."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from typing import Any

import pytest
from structlog.testing import LogCapture

from mcpfleet.process import events
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.events import RequestBegan, SnapshotChanged
from mcpfleet.process.observers import WAITING, Observers, observer_named
from mcpfleet.process.shutdown import OBSERVERS, Departure
from mcpfleet.telemetry.instruments import ProcessInstruments
from mcpfleet.telemetry.metrics import Metrics
from tests.kit.logs import captured
from tests.kit.observing import Told, observers
from tests.kit.waiting import until

KEPT: list[Any] = []


def keep(event: Any) -> None:
    """An observer that a setting can name."""
    KEPT.append(event)


def tell(those: Observers, count: int = 1) -> None:
    for number in range(count):
        those.tell(SnapshotChanged, "mcp", number, 2)


@pytest.mark.rule("X69")
def test_events_are_frozen_and_say_where_they_come_from() -> None:
    kinds = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, events.Event)]
    assert len(kinds) == 14
    for kind in kinds:
        assert dataclasses.is_dataclass(kind)
        assert [field.name for field in dataclasses.fields(kind)][:2] == ["service", "process"]
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]  # as dataclasses keep it


@pytest.mark.rule("X69")
async def test_a_plain_function_hears_all_in_order_in_a_thread_of_its_own() -> None:
    told, those = Told(), observers()
    those.add([told])
    tell(those, 100)
    await until(lambda: len(told.events) == 100)
    assert [event.number for event in told.events] == list(range(100))
    assert (told.events[0].service, told.events[0].process) == ("test", "p1")
    assert threading.current_thread().name not in told.threads


@pytest.mark.rule("X69")
async def test_an_async_function_hears_all_in_tasks_of_another_loop() -> None:
    heard: list[int] = []
    loops: set[asyncio.AbstractEventLoop] = set()

    async def observe(event: SnapshotChanged) -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        heard.append(event.number)

    those = observers()
    those.add([observe])
    tell(those, 100)
    await until(lambda: len(heard) == 100)
    assert heard == list(range(100))
    assert asyncio.get_running_loop() not in loops
    assert len(loops) == 1


@pytest.mark.rule("X69")
async def test_beyond_the_bound_events_are_dropped_and_counted_before_they_are_made() -> None:
    metrics = Metrics()
    told, made = Told(), 0
    told.released.clear()
    those = observers(dropped=ProcessInstruments(metrics).observer_drops)
    those.add([told])

    def make(*fields: Any) -> events.Event:
        nonlocal made
        made += 1
        return SnapshotChanged(*fields)

    for number in range(WAITING + 100):
        those.tell(make, "mcp", number, 2)
    dropped = {point.labels: point.value for family in metrics.read() for point in family.points if point.value}
    assert made in (WAITING, WAITING + 1)  # the thread may have taken one already
    assert dropped == {("Told",): WAITING + 100 - made}
    told.released.set()
    await until(lambda: len(told.events) == made)


@pytest.mark.rule("X69")
async def test_an_observer_that_fails_is_logged_and_hears_the_next() -> None:
    log, heard = LogCapture(), []

    def observe(event: SnapshotChanged) -> None:
        heard.append(event.number)
        if event.number == 0:
            raise ValueError("no disk")

    those = observers(log)
    those.add([observe])
    tell(those, 2)
    await until(lambda: heard == [0, 1])
    [line] = log.entries
    assert (line["event"], line["told"]) == ("observer failed", "SnapshotChanged")


@pytest.mark.rule("X69")
@pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError, TimeoutError])
async def test_no_exception_of_an_observer_ends_its_thread(raised: type[BaseException]) -> None:
    log, plain, asynchronous = LogCapture(), list[int](), list[int]()

    def observe(event: SnapshotChanged) -> None:
        plain.append(event.number)
        raise raised

    async def observe_async(event: SnapshotChanged) -> None:
        asynchronous.append(event.number)
        raise raised

    those = observers(log)
    those.add([observe, observe_async])
    tell(those, 2)
    await until(lambda: [line["event"] for line in log.entries] == ["observer failed"] * 4)
    assert plain == asynchronous == [0, 1]


@pytest.mark.rule("X69")
async def test_an_async_observer_is_cancelled_after_its_time_and_hears_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpfleet.process.observers.CALL_WITHIN", 0.05)
    log, heard = LogCapture(), []

    async def observe(event: SnapshotChanged) -> None:
        heard.append(event.number)
        if event.number == 0:
            await asyncio.sleep(60)

    those = observers(log)
    those.add([observe])
    tell(those, 2)
    await until(lambda: heard == [0, 1])
    await until(lambda: [line["event"] for line in log.entries] == ["observer too slow"])


@pytest.mark.rule("X69")
async def test_the_end_of_a_process_is_heard_and_one_that_blocks_holds_it_up_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, told, blocked = LogCapture(), Told(), Told()
    those = observers(log)
    those.add([told])
    async with those.during(""):
        tell(those)
    assert told.kinds() == ["ProcessBegan", "SnapshotChanged", "ProcessEnded"]
    assert told.events[-1].outcome == "ended"
    monkeypatch.setattr("mcpfleet.process.observers.CALL_WITHIN", 0.1)
    blocked.released.clear()
    those = observers(log)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="broken"):
        await fail_during(those, blocked)
    assert time.monotonic() - began < 5
    assert [(line["event"], line["events"]) for line in log.entries] == [("observer missed the end", 2)]
    blocked.released.set()


@pytest.mark.rule("X72")
async def test_who_missed_the_end_leaves_the_record_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpfleet.process.observers.CALL_WITHIN", 0.1)
    kept, missed, none = (Departure("edge", "p1") for _ in range(3))
    held = Told()
    for departure, functions in ((kept, [Told()]), (missed, [held]), (none, [])):
        those = observers(departure=departure)
        if functions == [held]:
            held.released.clear()
        async with those.during(""):
            those.add(functions)
    held.released.set()
    log = captured(LogCapture())
    found = [each.record("SIGTERM", log) for each in (kept, missed, none)]
    assert [each.unproven for each in found] == [(), (OBSERVERS,), ()]
    assert [each.complete for each in found] == [True, False, True]


async def fail_during(those: Observers, function: Told) -> None:
    """Add a function, as a worker adds those of its application, and fail."""
    async with those.during(""):
        those.add([function])
        raise RuntimeError("broken")


@pytest.mark.rule("X69")
async def test_a_setting_names_the_function() -> None:
    those = observers()
    async with those.during(f"{__name__}:keep"):
        those.tell(RequestBegan, "tools/call", "search", "t1")
    assert [type(event).__name__ for event in KEPT] == ["ProcessBegan", "RequestBegan", "ProcessEnded"]
    assert observer_named("") == ()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("module", "must be module:object"),
        ("nowhere:keep", "cannot import nowhere:keep: No module named"),
        (f"{__name__}:missing", "cannot import"),
        (f"{__name__}:KEPT", "is no function that takes an event"),
    ],
)
@pytest.mark.rule("X69")
def test_a_wrong_setting_says_what_would_be_right(target: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"MCPFLEET_OBSERVER: .*{why}"):
        observer_named(target)
