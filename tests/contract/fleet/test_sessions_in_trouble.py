"""Sessions where something dies, or an answer is lost, just then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.bus.memory.faults import Faults
from mcpfleet.bus.memory.switch import Switch
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import CHANGE, READ, session_key
from mcpfleet.edge.sessions.in_flight import InFlightRequests
from mcpfleet.testing.local import LocalFleet
from tests.chaos.streams import alive
from tests.contract.fleet.sessions_app import asking
from tests.contract.fleet.visitor import FORM, Visitor, Visitors, Watching
from tests.kit.clock import Clock
from tests.kit.waiting import pause, until

BOOK = "library://books/1"


class Held:
    """Keeps back what goes over a switch, and counts it."""

    def __init__(self, switch: Switch, monkeypatch: pytest.MonkeyPatch, picked: Callable[[Incoming], bool]) -> None:
        self._route = switch.route
        self._picked = picked
        self._kept: list[tuple[Any, Incoming]] = []
        self.is_holding = False
        monkeypatch.setattr(switch, "route", self._take)

    def __len__(self) -> int:
        return len(self._kept)

    def release(self) -> None:
        """Let all of it go on, and hold nothing more."""
        self.is_holding = False
        for sender, message in self._kept:
            self._route(sender, message)

    def _take(self, sender: Any, message: Incoming) -> None:
        if self.is_holding and self._picked(message):
            self._kept.append((sender, message))
        else:
            self._route(sender, message)


async def told_again(visitor: Visitor, watching: Watching) -> None:
    """Change the book until the stream tells it."""
    before = len(watching.uris())
    await visitor.call("place_hold", {"book": 1})
    await until(lambda: len(watching.uris()) > before)


async def watched_to_its_death(visitor: Visitor, watching: Watching) -> None:
    """Read a stream of edge 1 until that dies."""
    with pytest.raises(httpx2.RemoteProtocolError):
        await visitor.watch(watching, 1)


@pytest.mark.rule("L8")
async def test_a_session_that_ends_while_an_edge_looks_at_it_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its stream is gone when the answer comes that there is no session; this once ended the whole edge."""
    environment = {"MCPFLEET_SESSION_CHECKED": "0.1"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        subject = f"mcpfleet.{READ.subject_for()}"
        held = Held(fleet.switch, monkeypatch, lambda message: message.subject == subject)
        visitor, other = await visitors.one(1), await visitors.one(1)
        async with visitor.watching(0) as watching:
            assert (await visitor.ask("ping", edge=1))["result"] == {}, "it knows the session"
            held.is_holding = True
            await until(lambda: len(held))
            assert await visitor.delete(1) == 204
            await until(lambda: watching.is_over)
            held.release()
        assert (await other.ask("ping", edge=0))["result"] == {}
        async with other.watching(0):
            assert fleet.edges[0].is_running
        assert not fleet.lines("session not followed")


@pytest.mark.rule("L13")
async def test_a_stream_tells_what_changes_once_the_edge_of_the_newer_one_has_died() -> None:
    """Nobody says that the newer one is gone; its edge is asked now and then."""
    environment = {"MCPFLEET_SESSION_CHECKED": "0.2"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        async with visitor.watching(0) as watching:
            newer = Watching()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watched_to_its_death, visitor, newer)
                await until(lambda: newer.status == 200)
                await fleet.edges[1].kill()
            await until(lambda: watching.uris() == [BOOK])  # nobody knows what the other had not written
            await told_again(visitor, watching)
            assert not watching.is_over


@pytest.mark.rule("L13")
async def test_a_stream_tells_what_changes_although_a_newer_one_could_not_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the session has the newer one is not known to its edge, which takes it out all the same."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        asked: list[str] = []

        def is_answer(message: Incoming) -> bool:
            if message.subject == f"mcpfleet.{CHANGE.subject_for()}" and b'"opened":"' in message.body:
                asked.append(message.reply)
            return message.subject in asked

        visitor = await visitors.one()
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        async with visitor.watching(0) as watching:
            held = Held(fleet.switch, monkeypatch, is_answer)
            held.is_holding = True
            newer = Watching()
            await visitor.watch(newer, 1)
            assert newer.status == 504
            assert len(held)
            await told_again(visitor, watching)


@pytest.mark.rule("M81")
async def test_a_response_that_cannot_be_passed_on_is_not_taken() -> None:
    """A client that is told so may send it again; the call still waits."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.calling("order", {"title": "Emma"}, 1) as results:
            await until(lambda: visitor.asked)
            message = {"jsonrpc": "2.0", "id": visitor.asked[0]["id"], "result": FORM}
            assert (await visitor.ask("ping"))["result"] == {}, "the edge knows the session"
            fleet.edges[0].cut()
            response = await visitor.send(message, 0)
            assert (response.status_code, response.json().keys()) == (504, {"jsonrpc", "error"})
            fleet.edges[0].heal()
            await visitor.answer(visitor.asked[0]["id"], FORM)
        assert results[0]["content"][0]["text"] == "3 of Emma, soft"


@pytest.mark.rule("M75")
async def test_a_response_for_an_edge_that_has_died_is_taken_and_means_nothing() -> None:
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        gone = fleet.edges[1].process.id
        await fleet.edges[1].kill()
        await visitor.answer(f"{gone}-{'0' * 32}", FORM)


@pytest.mark.rule("L8")
async def test_a_session_lives_while_a_request_of_it_runs() -> None:
    """However long it is silent otherwise."""
    environment = {"MCPFLEET_SESSION_IDLE": "3", "MCPFLEET_SESSION_CHECKED": "0.1", "MCPFLEET_SESSION_KEPT": "0.1"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        answers: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, visitor, answers)
            await until(lambda: visitor.told)
            with anyio.move_on_after(4.0):
                await until(lambda: answers)
            assert answers == []
            assert (await visitor.ask("ping"))["result"] == {}
            await visitor.notify("notifications/cancelled", {"requestId": "mine"})
            await until(lambda: answers == [None])


@pytest.mark.rule("L8")
async def test_a_call_ends_with_its_session_although_its_edge_did_not_hear_of_the_end() -> None:
    environment = {"MCPFLEET_SESSION_CHECKED": "0.1"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        answers: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, visitor, answers)
            await until(lambda: visitor.told)
            fleet.switch.misbehave(Faults(lost=1.0, subjects=("mcpfleet.hint.session",)))
            assert await visitor.delete(0) == 204
            await until(lambda: answers)
        assert answers[0]["error"]["code"] == -32603, "its edge only sees that the session is over"


@pytest.mark.rule("L8")
async def test_a_call_hears_that_its_session_ended_by_itself() -> None:
    """Nobody asked for that, so there is an answer."""
    environment = {"MCPFLEET_SESSION_LASTS": "1", "MCPFLEET_SUBSCRIPTIONS_SWEEP": "0.1"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        answers: list[Any] = []
        await wait(visitor, answers)
        assert answers[0]["error"]["code"] == -32603
        assert await visitor.ask("ping") == 404


@pytest.mark.rule("L9")
async def test_a_stream_that_finds_no_room_costs_no_other_its_place() -> None:
    """The streams that there are go on, and tell what changes."""
    environment = {"MCPFLEET_MAX_STREAMS": "1"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.watching(0) as first, visitor.watching(1) as second:
            await visitor.ask("resources/subscribe", {"uri": BOOK})
            third = Watching()
            await visitor.watch(third, 1)
            assert third.status == 503
            await visitor.call("place_hold", {"book": 1})
            await until(lambda: second.uris() == [BOOK])
            assert not first.is_over


@pytest.mark.rule("L7")
async def test_a_cancel_may_overtake_its_request() -> None:
    """The request is still on its way to where it runs, and is not begun."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        assert (await visitor.ask("ping", edge=1))["result"] == {}, "it knows the session, and loses no time over it"
        running = [each for each in alive(InFlightRequests) if each._bus.is_up]
        await visitor.notify("notifications/cancelled", {"requestId": "mine"}, 0)
        await until(lambda: [len(each._cancelled) for each in running] == [1, 1])
        answers: list[Any] = []
        with anyio.fail_after(20):
            await wait(visitor, answers)
        assert answers == [None]
        assert not visitor.told


@pytest.mark.rule("L7")
async def test_who_has_used_up_its_requests_can_answer_and_take_back() -> None:
    environment = {"MCPFLEET_RATE_REQUESTS": "6/60"}
    async with LocalFleet(asking(), environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.calling("order", {"title": "Emma"}) as results:
            await until(lambda: visitor.asked)
            with anyio.fail_after(10):
                while (await visitor.ask("resources/read", {"uri": BOOK})).get("error", {}).get("code") != -31999:
                    await pause()
            await visitor.answer(visitor.asked[0]["id"], FORM)
        assert results[0].get("isError") is not True


@pytest.mark.rule("T33")
async def test_a_limit_says_why_to_whatever_comes_in_a_session() -> None:
    """D4: a response, GET and DELETE have no id to answer to; a notification is told by the status alone (T4)."""
    environment = {"MCPFLEET_RATE_REQUESTS": "6/60"}
    async with LocalFleet(asking(), environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor, [http] = await visitors.one(), visitors.https
        answer = {"jsonrpc": "2.0", "id": "x", "result": {}}
        with anyio.fail_after(10):
            while (refused := await visitor.send(answer)).status_code == 202:
                await pause()
        get = visitor.headers(accept="text/event-stream")
        for response in (refused, await http.get("/mcp", headers=get), await http.delete("/mcp", headers=get)):
            assert (response.status_code, response.json()["error"]["code"]) == (429, -31999)
            assert "id" not in response.json()
            assert int(response.headers["retry-after"]) > 0
        told = await visitor.notify("notifications/roots/list_changed")
        assert (told.status_code, told.content) == (429, b"")
        assert int(told.headers["retry-after"]) > 0


async def wait(visitor: Visitor, answers: list[Any]) -> None:
    """Call what takes long, at edge 1."""
    params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": "t"}}
    answers.append(await visitor.ask("tools/call", params, 1, "mine"))


@pytest.mark.rule("D11")
async def test_a_session_outlives_subscriptions() -> None:
    """At an edge, too, that learns of it only then."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.watching(0) as watching:
            await fleet.restart_subscriptions()
            assert (await visitor.ask("resources/subscribe", {"uri": BOOK}, 1))["result"] == {}
            await told_again(visitor, watching)


@pytest.mark.rule("L7")
async def test_ids_that_are_taken_back_are_remembered_briefly_and_long_ones_not_at_all(clock: Clock) -> None:
    """A cancel of an unknown request costs no edge its memory."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        running = [each for each in alive(InFlightRequests) if each._bus.is_up]
        for number in range(5):
            await visitor.notify("notifications/cancelled", {"requestId": f"{number}" * 2_000})
        assert [len(each._cancelled) for each in running] == [0, 0]
        await visitor.notify("notifications/cancelled", {"requestId": "short"})
        await until(lambda: [len(each._cancelled) for each in running] == [1, 1])
        await clock.move(2.1)
        await visitor.notify("notifications/cancelled", {"requestId": "other"})
        await until(lambda: [list(each._cancelled) for each in running] == [[(running_key(visitor), "other")]] * 2)


def running_key(visitor: Visitor) -> str:
    """How edges name the session."""
    assert visitor.session is not None
    return session_key(visitor.session)
