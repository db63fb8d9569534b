"""Handlers' questions to clients of 2025 within their calls: any edge takes the answer, and nobody is held up (M81)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcpfleet.testing.local import LocalFleet
from mcpfleet.wire.protocol import OLDEST
from tests.contract.fleet.sessions_app import asking
from tests.contract.fleet.test_sessions import said
from tests.contract.fleet.visitor import FORM, Visitors
from tests.kit.waiting import until

SAID = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///home"}]}


@pytest.mark.rule("M81")
async def test_a_question_is_answered_to_any_edge() -> None:
    """Invariant 12: by the same application code as that of 2026-07-28, without a slot being held meanwhile."""
    environment = {"MCPFLEET_SLOTS": "1", "MCPFLEET_QUEUE": "0"}
    async with LocalFleet(asking(), edges=3, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        visitor.answering_edge = 1
        async with anyio.create_task_group() as tasks:
            results: list[Any] = []

            async def order() -> None:
                results.append(await visitor.call("order", {"title": "Emma"}, 2))

            tasks.start_soon(order)
            await until(lambda: visitor.asked)
            assert said(await visitor.call("chat", edge=0)) == "said", "the one slot is free"
            await visitor.answer(visitor.asked[0]["id"], FORM)
        assert said(results[0]) == "3 of Emma, soft"
        assert visitor.asked[0]["method"] == "elicitation/create"
        assert visitor.asked[0]["params"]["mode"] == "form"


@pytest.mark.rule("M81")
async def test_several_questions_are_asked_at_once_and_in_rounds() -> None:
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        visitor.answering_edge = 1
        visitor.answers = {"elicitation/create": FORM, "sampling/createMessage": SAID, "roots/list": ROOTS}
        assert said(await visitor.call("interview")) == "3 hello 1 3"
        asked = [each["method"] for each in visitor.asked]
        assert sorted(asked[:3]) == ["elicitation/create", "roots/list", "sampling/createMessage"]
        assert asked[3:] == ["elicitation/create"]
        assert len({each["id"] for each in visitor.asked}) == 4


@pytest.mark.rule("M81")
@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}, {"code": -1, "message": "no"}])
async def test_what_is_declined_or_fails_ends_the_call_by_its_result(answer: Any) -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        visitor.answers = {"elicitation/create": answer}
        assert (await visitor.call("order", {"title": "Emma"}))["isError"] is True


@pytest.mark.rule("M55")
async def test_an_answer_that_breaks_the_form_is_asked_for_again() -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        bad = {"action": "accept", "content": {"copies": 99}}
        async with visitor.calling("order", {"title": "Emma"}) as results:
            await until(lambda: len(visitor.asked) == 1)
            await visitor.answer(visitor.asked[0]["id"], bad)
            await until(lambda: len(visitor.asked) == 2)
            await visitor.answer(visitor.asked[1]["id"], FORM)
        assert said(results[0]) == "3 of Emma, soft"


@pytest.mark.rule("M75")
async def test_a_response_that_nobody_waits_for_is_taken_and_means_nothing() -> None:
    """Another session's is none either: an answer counts only from who was asked."""
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        asked, other = await visitors.one(), await visitors.one()
        async with asked.calling("order", {"title": "Emma"}) as results:
            await until(lambda: asked.asked)
            for identifier in ("nonsense", f"{'0' * 16}-{'0' * 32}", asked.asked[0]["id"]):
                await other.answer(identifier, FORM)
            assert not results
            await asked.answer(asked.asked[0]["id"], FORM)
        assert said(results[0]) == "3 of Emma, soft"


@pytest.mark.rule("D11")
async def test_an_answer_that_does_not_come_ends_the_call() -> None:
    async with LocalFleet(asking(), environment={"MCPFLEET_ANSWER_WAIT": "0.3"}) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        result = await visitor.call("order", {"title": "Emma"})
        assert result["isError"] is True
        assert "did not give the input in time" in said(result)
        assert [(each["method"], each["params"]["requestId"]) for each in visitor.told] == [
            ("notifications/cancelled", visitor.asked[0]["id"])
        ]


@pytest.mark.rule("D16")
async def test_a_client_that_cannot_answer_is_not_asked() -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(capabilities={})
        result = await visitor.call("order", {"title": "Emma"})
        assert result["isError"] is True
        assert "elicitation.form" in said(result)
        assert not visitor.asked


@pytest.mark.rule("M79")
async def test_a_page_has_an_id_in_2025_11_25_and_does_not_exist_before() -> None:
    capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(capabilities=capabilities)
        visitor.answers = {"elicitation/create": {"action": "accept"}}
        assert said(await visitor.call("pay")) == "paid"
        assert visitor.asked[0]["params"]["mode"] == "url"
        assert visitor.asked[0]["params"]["elicitationId"]
        older = await visitors.one(capabilities=capabilities, version=OLDEST)
        assert (await older.call("pay"))["isError"] is True
        assert not older.asked


@pytest.mark.rule("M78")
async def test_the_form_of_2025_06_18_has_no_mode() -> None:
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(version=OLDEST)
        visitor.answers = {"elicitation/create": FORM}
        assert said(await visitor.call("order", {"title": "Emma"})) == "3 of Emma, soft"
        assert visitor.asked[0]["params"].keys() == {"message", "requestedSchema"}


@pytest.mark.rule("D17")
async def test_an_edge_that_leaves_ends_what_waits_for_an_answer() -> None:
    environment = {"MCPFLEET_LAME": "0", "MCPFLEET_DRAIN": "0.3"}
    async with LocalFleet(asking(), edges=2, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        results: list[Any] = []

        async def order() -> None:
            results.append(await visitor.call("order", {"title": "Emma"}, 1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(order)
            await until(lambda: visitor.asked)
            tasks.start_soon(fleet.edges[1].stop)
            await until(lambda: results)
        assert results[0]["isError"] is True
        assert "had to stop" in said(results[0])


@pytest.mark.rule("M81")
async def test_a_refusal_ends_the_call_with_the_clients_words_and_takes_the_rest_back() -> None:
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        visitor.answering_edge = 1
        visitor.answers = {"sampling/createMessage": {"code": -1, "message": "User rejected sampling request"}}
        with anyio.fail_after(10):
            result = await visitor.call("interview")
        assert result["isError"] is True
        assert "User rejected sampling request" in said(result)
        unanswered = [each["id"] for each in visitor.asked if each["method"] != "sampling/createMessage"]
        assert sorted(each["params"]["requestId"] for each in visitor.told) == sorted(unanswered)


@pytest.mark.rule("I2")
async def test_a_key_is_not_held_while_a_person_thinks() -> None:
    """Each round takes its key anew, as it does for a client of 2026-07-28; there is one effect in the end."""
    done: list[str] = []
    async with LocalFleet(asking(done), edges=2) as fleet, Visitors(fleet) as visitors:
        first, second = await visitors.one(), await visitors.one()
        results: list[Any] = []

        async def order(visitor: Any, edge: int) -> None:
            results.append(await visitor.call("order_once", {"key": "k"}, edge))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(order, first, 0)
            tasks.start_soon(order, second, 1)
            await until(lambda: first.asked and second.asked)
            for visitor in (first, second):
                await visitor.answer(visitor.asked[0]["id"], FORM)
        assert done == ["k"]
        assert [said(result) for result in results] == ["3", "3"]


@pytest.mark.rule("M81")
async def test_what_ran_before_a_question_is_never_told_as_not_run() -> None:
    """I3: no worker is left that could go on with the answer, and the first part of the work is done."""
    environment = {"MCPFLEET_QUEUE_WAIT": "0.3"}
    async with LocalFleet(asking(), environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.calling("order", {"title": "Emma"}) as results:
            await until(lambda: visitor.asked)
            await fleet.workers[0].kill()
            await visitor.answer(visitor.asked[0]["id"], FORM)
        assert results[0]["isError"] is True
        assert "Earlier side effects may have happened" in said(results[0])


@pytest.mark.rule("M75")
@pytest.mark.parametrize("members", [{}, {"result": None}, {"error": "no"}])
async def test_a_malformed_answer_is_an_answer(members: Any) -> None:
    """The asker need not wait any more."""
    async with LocalFleet(asking()) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        async with visitor.calling("order", {"title": "Emma"}) as results:
            await until(lambda: visitor.asked)
            taken = await visitor.send({"jsonrpc": "2.0", "id": visitor.asked[0]["id"], **members})
            assert taken.status_code == 202
        assert results[0]["isError"] is True
