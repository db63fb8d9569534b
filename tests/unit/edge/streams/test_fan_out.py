"""Many streams are told in turns of the loop, and the same thing once more where it happens meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from mcpfleet.edge.streams.stream import FanOut, Stream
from tests.kit.waiting import until
from tests.unit.edge.streams.opened import stream

pytestmark = pytest.mark.usefixtures("jumping")


async def test_each_is_told_once_and_others_have_their_turn_meanwhile() -> None:
    turns, told = FanOut(), list[Stream]()
    streams = [stream().stream for _ in range(500)]
    turns.begin("a", streams, lambda: told.append)
    assert 0 < len(told) < len(streams)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(told) < len(streams)
    await until(lambda: len(told) == len(streams), within=5)
    assert set(told) == set(streams)
    assert turns._under_way == {}


async def test_what_happens_again_meanwhile_is_told_once_more_however_often() -> None:
    turns, told = FanOut(), list[Stream]()
    streams = [stream().stream for _ in range(200)]
    for _ in range(5):
        turns.begin("a", streams, lambda: told.append)
    await until(lambda: turns._under_way == {}, within=5)
    assert len(told) == 2 * len(streams)


async def test_one_that_joined_meanwhile_is_told_when_it_happens_again() -> None:
    turns, told = FanOut(), list[Stream]()
    streams = [stream().stream for _ in range(200)]
    turns.begin("a", streams, lambda: told.append)
    streams.append(stream().stream)
    turns.begin("a", streams, lambda: told.append)
    turns.begin("b", streams[-1:], lambda: told.append)
    await until(lambda: turns._under_way == {}, within=5)
    assert told.count(streams[-1]) == 2
    assert told.count(streams[0]) == 2
