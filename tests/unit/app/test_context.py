"""The call as its handler sees it, and the effects of the handler's reports."""

import time

import anyio
import anyio.to_thread
import pytest

from mcpfleet.app import CancelSignal, Client, Context, Principal, Progress, ProgressError


@pytest.mark.rule("P2")
async def test_reports_reach_whoever_asked_for_them() -> None:
    sent: list[Progress] = []
    ctx = Context(report=sent.append)
    await ctx.progress(0, total=2)
    await ctx.progress(0, total=2, message="says nothing new")
    await ctx.progress(1, 2, "half")
    assert sent == [Progress(0, 2), Progress(1, 2, "half")]


@pytest.mark.rule("P1")
async def test_without_a_reporter_nothing_is_sent_but_the_rule_holds() -> None:
    ctx = Context()
    await ctx.progress(2)
    with pytest.raises(ProgressError):
        await ctx.progress(1)


@pytest.mark.rule("P2")
async def test_a_refused_report_leaves_the_last_one_in_force() -> None:
    sent: list[Progress] = []
    ctx = Context(report=sent.append)
    await ctx.progress(1)
    with pytest.raises(ProgressError):
        await ctx.progress(float("nan"))
    await ctx.progress(2)
    assert sent == [Progress(1), Progress(2)]


@pytest.mark.rule("P3")
async def test_reports_after_the_end_do_nothing_not_even_fail() -> None:
    sent: list[Progress] = []
    ctx = Context(report=sent.append)
    await ctx.progress(5)
    ctx.end()
    await ctx.progress(6)
    await ctx.progress(1)
    assert sent == [Progress(5)]


@pytest.mark.rule("P3")
async def test_reports_after_a_cancel_do_nothing_not_even_fail() -> None:
    sent: list[Progress] = []
    signal = CancelSignal()
    ctx = Context(report=sent.append, cancelled=signal)
    await ctx.progress(5)
    signal.cancel()
    await ctx.progress(6)
    await ctx.progress(1)
    assert sent == [Progress(5)]


async def test_progress_lets_a_cancelled_handler_stop() -> None:
    ctx = Context()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await ctx.progress(1)
    assert scope.cancelled_caught


async def test_progress_from_a_thread_goes_through_the_event_loop() -> None:
    sent: list[Progress] = []
    ctx = Context(report=sent.append)
    await anyio.to_thread.run_sync(lambda: ctx.sync.progress(1, total=3, message="from a thread"))
    assert sent == [Progress(1, 3, "from a thread")]


async def test_progress_from_a_thread_follows_the_same_rule() -> None:
    ctx = Context()
    await ctx.progress(2)
    with pytest.raises(ProgressError):
        await anyio.to_thread.run_sync(lambda: ctx.sync.progress(1))


def test_a_plain_context_is_an_anonymous_call_without_end() -> None:
    ctx = Context()
    assert ctx.principal == Principal()
    assert ctx.client.info is None
    assert ctx.client.capabilities.elicitation is None
    assert ctx.remaining == float("inf")
    assert not ctx.cancelled


def test_remaining_counts_down_to_zero() -> None:
    assert 59 < Context(deadline=time.monotonic() + 60).remaining <= 60
    assert Context(deadline=time.monotonic() - 1).remaining == 0


@pytest.mark.rule("M25")
def test_the_client_is_what_this_request_says() -> None:
    client = Client(info={"name": "inspector", "version": "2"}, capabilities={"elicitation": {"form": {}}})
    assert client.info is not None
    assert client.info.name == "inspector"
    assert client.capabilities.elicitation is not None
    assert client.capabilities.sampling is None


@pytest.mark.rule("M25")
def test_what_a_client_says_in_another_form_counts_as_not_said() -> None:
    client = Client(info={"name": 7}, capabilities={"elicitation": "yes"})
    assert client.info is None
    assert client.capabilities.elicitation is None
