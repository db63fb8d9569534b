"""One stream's loop, with a client at its other end that reads, stops reading, or leaves."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from mcpfleet.contracts.principal import ANONYMOUS
from mcpfleet.edge.streams.lease import StreamLease
from mcpfleet.edge.streams.stream import Exit
from mcpfleet.edge.transport.http_exchange import ClientStalled
from mcpfleet.wire.filter import Filter
from mcpfleet.wire.notices import LIST_CHANGED, resource_updated
from tests.kit.waiting import until
from tests.unit.edge.streams.opened import URI, Open, seen, stream

pytestmark = pytest.mark.usefixtures("jumping")


@asynccontextmanager
async def running(opened: Open) -> AsyncIterator[Open]:
    """A stream whose acknowledgment has come."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opened.run)
        await opened.told(1)
        yield opened
        opened.exchange.leave()


ACK, TOOLS, UPDATED, END = (
    "notifications/subscriptions/acknowledged",
    "notifications/tools/list_changed",
    "notifications/resources/updated",
    "the end",
)


@pytest.mark.rule("M58", "invariant 4")
async def test_the_acknowledgment_is_first_and_what_was_offered_before_follows() -> None:
    opened = stream()
    opened.stream.offer(URI, resource_updated(URI))
    async with running(opened):
        assert await opened.told(2) == [ACK, UPDATED]
        [acknowledged, _] = opened.exchange.read_events()
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": [URI]}
        assert opened.exchange.headers[b"content-type"] == b"text/event-stream"
        assert opened.exchange.headers[b"x-accel-buffering"] == b"no"


@pytest.mark.rule("S16")
async def test_a_burst_is_told_once_and_a_change_while_it_is_written_once_more() -> None:
    async with running(stream()) as opened:
        opened.exchange.pause()
        for _ in range(3):
            opened.stream.offer(URI, resource_updated(URI))
        await anyio.wait_all_tasks_blocked()  # it is being written
        for _ in range(3):
            opened.stream.offer(URI, resource_updated(URI))
        opened.exchange.go_on()
        assert await opened.told(3) == [ACK, UPDATED, UPDATED]
        opened.stream.end(Exit.SHUTDOWN)
        assert await opened.told(4) == [ACK, UPDATED, UPDATED, END]


async def test_what_waits_is_written_in_one_piece_and_in_its_order() -> None:
    async with running(stream()) as opened:
        pieces = len(opened.exchange.sent)
        opened.stream.offer(URI, resource_updated(URI))
        opened.stream.offer("tools", LIST_CHANGED["tools"])
        assert await opened.told(3) == [ACK, UPDATED, TOOLS]
        assert len(opened.exchange.sent) == pieces + 1


@pytest.mark.rule("S15")
async def test_a_list_is_told_only_where_the_callers_view_of_it_differs() -> None:
    """A change of a URI shows that nothing else was written before it."""
    async with running(stream()) as opened:
        opened.stream.see(seen("search", number=2))
        opened.stream.offer(URI, resource_updated(URI))
        assert await opened.told(2) == [ACK, UPDATED]
        opened.stream.see(seen("search", "place", number=3))
        assert await opened.told(3) == [ACK, UPDATED, TOOLS]
        opened.stream.see(seen("search", "place", number=4))
        opened.stream.offer(URI, resource_updated(URI))
        assert await opened.told(4) == [ACK, UPDATED, TOOLS, UPDATED]


@pytest.mark.parametrize("why", [Exit.SHUTDOWN, Exit.LEASE_ENDED, Exit.TOO_SLOW, Exit.LIFETIME])
@pytest.mark.rule("D1", "S12", "S13")
async def test_an_end_of_ours_is_the_empty_result_and_nothing_that_waited(why: Exit) -> None:
    async with running(stream()) as opened:
        opened.stream.offer(URI, resource_updated(URI))
        opened.stream.end(why)
        opened.stream.offer("tools", LIST_CHANGED["tools"])
        await opened.exchange.until(lambda: opened.exchange.is_over)
    assert await opened.told(2) == [ACK, END]
    assert opened.ends == [why]
    last = opened.exchange.read_events()[-1]
    assert last["result"]["resultType"] == "complete"
    assert why not in str(last)


@pytest.mark.rule("D6")
async def test_a_stream_that_ends_before_it_began_is_acknowledged_first() -> None:
    opened = stream(Filter())
    opened.stream.end(Exit.NOTHING_HONOURED)
    await opened.run()
    assert await opened.told(2) == [ACK, END]
    assert opened.exchange.read_events()[0]["params"]["notifications"] == {}


@pytest.mark.rule("M15")
async def test_a_client_that_leaves_is_told_nothing_more() -> None:
    async with running(stream()) as opened:
        opened.exchange.leave()
    assert opened.ends == [Exit.CLIENT_GONE]
    assert await opened.told(1) == [ACK]
    assert not opened.exchange.is_over


@pytest.mark.rule("N3", "S14")
async def test_a_stream_for_which_too_much_waits_is_ended_and_keeps_place_for_its_end() -> None:
    async with running(stream(pending=2)) as opened:
        opened.exchange.pause()
        for key in "abcd":
            opened.stream.offer(key, resource_updated(f"{key}:"))
            await anyio.wait_all_tasks_blocked()  # the first is being written, the next two wait
        opened.exchange.go_on()
        await opened.exchange.until(lambda: opened.exchange.is_over)
    assert await opened.told(3) == [ACK, UPDATED, END]
    assert opened.ends == [Exit.TOO_SLOW]


@pytest.mark.rule("N5")
async def test_a_client_that_does_not_read_is_given_up() -> None:
    async with running(stream(write_timeout=0.1)) as opened:
        opened.exchange.pause()
        opened.stream.offer(URI, resource_updated(URI))
        await until(lambda: opened.ends, within=5)
        opened.exchange.go_on()
    assert opened.ends == [ClientStalled]


@pytest.mark.rule("N4")
async def test_a_silent_stream_shows_that_it_lives() -> None:
    async with running(stream(keepalive=0.05)) as opened:
        await opened.exchange.until(lambda: opened.exchange.body.count(b": keepalive\n\n") >= 2)


@pytest.mark.rule("N2")
async def test_a_stream_ends_when_it_is_old_however_busy_it_is() -> None:
    async with running(stream(lasts=0.2, keepalive=0.05)) as opened:
        with anyio.fail_after(5):
            while not opened.exchange.is_over:
                opened.stream.offer(URI, resource_updated(URI))
                await anyio.sleep(0.001)
    assert opened.ends == [Exit.LIFETIME]


@pytest.mark.rule("S2")
async def test_keepalives_do_not_extend_a_lease() -> None:
    lease = StreamLease(ANONYMOUS)
    lease.expires = anyio.current_time() + 0.2  # of the same clock as time.monotonic
    async with running(stream(keepalive=0.05, lease=lease)) as opened:
        await opened.exchange.until(lambda: opened.exchange.is_over)
    assert opened.ends == [Exit.LEASE_ENDED]
    assert lease.expires < math.inf


@pytest.mark.rule("S3", "L14")
async def test_nothing_is_sent_while_a_lease_is_renewed_and_nothing_is_lost() -> None:
    async with running(stream()) as opened:
        opened.stream.fence()
        opened.stream.offer(URI, resource_updated(URI))
        opened.stream.offer("tools", LIST_CHANGED["tools"])
        await anyio.wait_all_tasks_blocked()
        assert await opened.told(1) == [ACK]
        for key, notice in opened.stream.lift().items():
            opened.stream.offer(key, notice)
        assert await opened.told(3) == [ACK, UPDATED, TOOLS]


@pytest.mark.rule("S3", "L14", "X52")
async def test_behind_a_fence_comments_alone_are_sent() -> None:
    """They wake the loop, which then finds a change that waits."""
    async with running(stream(keepalive=0.05)) as opened:
        assert await opened.told(1) == [ACK]
        opened.stream.fence()
        opened.stream.offer(URI, resource_updated(URI))
        await opened.exchange.until(lambda: opened.exchange.body.count(b": keepalive\n\n") >= 3)
        assert opened.exchange.body.count(b"data: ") == 1


@pytest.mark.rule("S4", "L14")
async def test_after_a_fence_what_may_not_be_heard_any_more_is_not() -> None:
    async with running(stream()) as opened:
        opened.stream.fence()
        opened.stream.offer(URI, resource_updated(URI))
        opened.stream.offer("tools", LIST_CHANGED["tools"])
        waited = opened.stream.lift()
        assert set(waited) == {URI, "tools"}
        opened.stream.offer("tools", waited["tools"])
        assert await opened.told(2) == [ACK, TOOLS]
