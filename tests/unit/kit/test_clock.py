"""The clock that tests move: timers fire in their order, at the time that they wait for, and none is waited for."""

from __future__ import annotations

import asyncio
import time

import anyio
import pytest

from tests.kit.clock import Clock


async def test_what_is_due_happens_in_its_order_while_the_clock_is_moved(clock: Clock) -> None:
    fired: list[tuple[str, float]] = []
    began = time.monotonic()

    async def wait(name: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        fired.append((name, round(time.monotonic() - began)))

    really = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for name, seconds in (("late", 50), ("soon", 10), ("later", 70)):
            tasks.start_soon(wait, name, seconds)
        await anyio.wait_all_tasks_blocked()
        await clock.move(60)
        assert fired == [("soon", 10), ("late", 50)]
        await clock.move(20)
    assert fired[2:] == [("later", 70)]
    assert time.perf_counter() - really < 10


async def test_a_clock_that_jumps_lets_every_timeout_come_at_once(jumping: Clock) -> None:
    really = time.perf_counter()
    with anyio.move_on_after(3600) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), timeout=3600)
    assert jumping.ahead >= 7199
    assert time.perf_counter() - really < 10


async def test_what_is_ready_on_a_socket_comes_before_a_timer(jumping: Clock) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with anyio.fail_after(5):
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
        writer.close()


async def test_without_a_test_that_moves_it_the_clock_is_the_machines() -> None:
    assert time.monotonic.__module__ == "time"
