"""How a `tools/call` is answered: JSON, or a stream from its first report on, and always once."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from mcpfleet.bus import header
from mcpfleet.contracts.call import AUTHORED_ERROR, FrameKind
from mcpfleet.wire.errors import Rejection
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.edge_harness import REFERENCE, TARGET, Taken, edge_harness, text_of
from tests.kit.waiting import until

SERVER_KEY = "io.modelcontextprotocol/serverInfo"


# -- JSON or a stream ------------------------------------------------------------------------------------------------


@pytest.mark.rule("P5")
async def test_without_progress_the_answer_is_json(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        at.worker.on_call = at.worker.finish
        answering = at.answer(token="t")
        await answering.over()
        assert answering.exchange.status == 200
        assert text_of(answering.exchange.json) == "done"
        assert answering.outcome is None


@pytest.mark.rule("M19")
async def test_a_result_is_given_the_id_and_the_servers_name(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        at.worker.on_call = at.worker.finish
        answering = at.answer()
        await answering.over()
        message = answering.exchange.json
        assert message["id"] == 1
        assert message["result"]["_meta"][SERVER_KEY] == {"name": "library", "version": "1"}


@pytest.mark.rule("P5")
async def test_the_first_report_makes_the_answer_a_stream_that_ends_with_the_result(fabric: Fabric) -> None:
    """P6: a report has no id, the end has the request's."""
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        at.worker.report(taken, 0)
        [first] = await answering.exchange.events(1)
        assert first == {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "t", "progress": 0},
        }
        ongoing = not answering.exchange.is_over
        at.worker.report(taken, 1)
        at.worker.finish(taken)
        await answering.over()
        _, second, end = await answering.exchange.events(3)
        assert second["params"]["progress"] == 1
        assert (end["id"], text_of(end)) == (1, "done")
        assert (ongoing, answering.exchange.is_over) == (True, True)
        assert answering.exchange.headers[b"content-type"] == b"text/event-stream"


@pytest.mark.rule("P1")
@pytest.mark.parametrize("token", ["t", "", 0, 7])
async def test_the_token_keeps_its_type(fabric: Fabric, token: Any) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(token=token)
        at.worker.report(await at.worker.call(), 1)
        [event] = await answering.exchange.events(1)
        echo = event["params"]["progressToken"]
        assert (type(echo), echo) == (type(token), token)


async def test_reports_that_come_with_the_end_are_not_lost(fabric: Fabric) -> None:
    def at_once(taken: Taken) -> None:
        for number in range(3):
            at.worker.report(taken, number)
        at.worker.finish(taken)

    async with edge_harness(fabric) as at:
        at.worker.on_call = at_once
        answering = at.answer(token="t")
        await answering.over()
        events = await answering.exchange.events(4)
        assert [event["params"]["progress"] for event in events[:3]] == [0, 1, 2]
        assert text_of(events[3]) == "done"


@pytest.mark.rule("P1")
async def test_without_a_token_a_report_commits_no_stream(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        taken = await at.worker.call()
        at.worker.report(taken, 1)
        at.worker.finish(taken)
        await answering.over()
        assert text_of(answering.exchange.json) == "done"


@pytest.mark.rule("M12")
async def test_nothing_follows_the_end(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        at.worker.report(taken, 1)
        await answering.exchange.events(1)
        at.worker.finish(taken)
        await answering.over()
        at.worker.report(taken, 2)
        at.worker.finish(taken, "again")
        await heard(at.worker.bus, at.edge)
        assert len(await answering.exchange.events(2)) == 2


@pytest.mark.rule("D17")
async def test_a_silent_call_becomes_a_stream_of_comments_and_ends_with_its_result(fabric: Fabric) -> None:
    """Proxies cut quiet connections, and that is a cancellation."""
    async with edge_harness(fabric, silent_after=0.3, keepalive=0.1) as at:
        answering = at.answer()
        taken = await at.worker.call()
        began = time.monotonic()
        await answering.exchange.until(lambda: answering.exchange.body.count(b": keepalive\n\n") >= 3)
        assert time.monotonic() - began >= 0.3
        at.worker.finish(taken)
        await answering.over()
        [end] = await answering.exchange.events(1)
        assert text_of(end) == "done"


async def test_a_report_puts_the_next_comment_off(fabric: Fabric) -> None:
    async with edge_harness(fabric, silent_after=60.0, keepalive=0.4) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        for number in range(7):
            at.worker.report(taken, number)
            await answering.exchange.events(number + 1)
            await anyio.sleep(0.1)
        assert b"keepalive" not in answering.exchange.body
        at.worker.finish(taken)
        await answering.over()


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M24")
@pytest.mark.parametrize(("line", "status"), [(AUTHORED_ERROR, 400), (None, 200)])
async def test_an_applications_error_is_answered_with_its_status(fabric: Fabric, line: str | None, status: int) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        taken = await at.worker.call()
        at.worker.frame(taken, FrameKind.ERROR, b'{"code":-1,"message":"Not now."}', line)
        await answering.over()
        assert answering.exchange.status == status
        assert answering.exchange.json == {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "Not now."}}
        assert answering.outcome == "application_error"


async def test_an_error_ends_a_stream_as_its_last_event(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        at.worker.report(taken, 1)
        at.worker.frame(taken, FrameKind.ERROR, b'{"code":-1,"message":"Not now."}', AUTHORED_ERROR)
        await answering.over()
        assert (await answering.exchange.events(2))[1]["error"]["code"] == -1
        assert answering.exchange.is_over


MALFORMED = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"{}", id="no _meta"),
    pytest.param(b'{"_meta":{},"a":\n1}', id="two lines"),
    pytest.param(b'{"_meta":{}}\r\n\r\ndata: {"forged":true}', id="a forged event"),
]


@pytest.mark.rule("D18")
@pytest.mark.parametrize("body", MALFORMED)
async def test_a_result_that_cannot_be_spliced_is_an_internal_error_with_a_reference(
    fabric: Fabric, body: bytes
) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        at.worker.frame(await at.worker.call(), FrameKind.RESULT, body)
        await answering.over()
        assert answering.exchange.status == 200
        error = answering.exchange.json["error"]
        assert error["code"] == -32603
        assert REFERENCE in error["message"]
        assert b"forged" not in answering.exchange.body
    assert fabric.lines("malformed end")


@pytest.mark.rule("D18")
async def test_a_report_that_cannot_be_spliced_is_left_out(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        at.worker.frame(taken, FrameKind.PROGRESS, b'{"progress":1}\n\ndata: {"forged":true}')
        at.worker.report(taken, 2)
        at.worker.finish(taken)
        await answering.over()
        report, _ = await answering.exchange.events(2)
        assert report["params"]["progress"] == 2
        assert b"forged" not in answering.exchange.body


# -- no room ---------------------------------------------------------------------------------------------------------


async def test_a_call_that_was_refused_is_placed_again_when_there_is_room(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        at.worker.on_call = at.worker.busy
        answering = at.answer()
        await until(lambda: len(at.worker.taken) > 1)
        at.worker.on_call = at.worker.finish
        await answering.over()
        assert text_of(answering.exchange.json) == "done"
        assert len(at.calls) == 0


async def test_a_worker_for_which_the_call_was_too_old_is_no_end(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:

        def expire_once(taken: Taken) -> None:
            if len(at.worker.taken) == 1:
                at.worker.bus.respond(taken.message, b"", header.expired())
            else:
                at.worker.finish(taken)

        at.worker.on_call = expire_once
        answering = at.answer()
        await answering.over()
        assert text_of(answering.exchange.json) == "done"


async def test_calls_that_wait_are_counted_by_their_tool(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_wait=5, probe_min=0.05, probe_max=0.05) as at:
        at.worker.on_call = at.worker.busy
        answering = at.answer()
        waiting = at.instruments.queue_tools
        await until(lambda: [point.value for point in waiting.read().points] == [1])
        [point] = waiting.read().points
        assert point.labels == (TARGET.listed.definition.name,)
        at.worker.on_call = at.worker.finish
        await answering.over()
        assert [each.value for each in waiting.read().points] == [0]


@pytest.mark.rule("D4")
async def test_a_pool_that_stays_full_is_503_and_nothing_was_sent(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_wait=0.3) as at:
        at.worker.on_call = at.worker.busy
        answering = at.answer()
        await answering.over()
        assert isinstance(answering.error, Rejection)
        assert answering.error.status == 503
        assert answering.exchange.sent == []
