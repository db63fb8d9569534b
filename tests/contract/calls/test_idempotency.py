"""Idempotency keys at the edge: what it tells the tasks service about a call that does not come to run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio
import pytest

from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.call import UNCERTAIN
from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.principal import ANONYMOUS
from mcpfleet.contracts.tasks import (
    RESERVE,
    Binding,
    KeyOutcome,
    Once,
    Reservation,
    Reserve,
    Reserved,
    TasksClient,
    once_key,
    task_hint_subject,
)
from mcpfleet.edge.calls.in_flight import Call, End, Order
from mcpfleet.edge.tasks.idempotency import Idempotency
from mcpfleet.wire.envelope import Envelope
from tests.contract.bus.fabric import Fabric, by_edges, heard
from tests.contract.calls.edge_harness import TARGET, VIEW
from tests.kit.waiting import until
from tests.unit.edge.asgi import admitted


async def run(reservation: Reservation, see: Callable[[Call], None]) -> None:
    """Run nothing: its client has left before."""
    raise AssertionError(f"{reservation} {see}")


@pytest.mark.rule("I1")
async def test_a_key_is_let_go_where_its_client_leaves_while_it_is_reserved(fabric: Fabric) -> None:
    """Its retry would wait for a call that never runs, and then hear that the outcome is unknown."""
    asked: list[Reserve] = []

    def note(message: Incoming) -> None:
        asked.append(Reserve.model_validate_json(message.body))

    async with fabric.buses("edge", "tasks") as (edge, tasks):
        await tasks.subscribe(RESERVE.subject, note, asked_by=by_edges)
        await heard(edge, tasks)
        idempotency = Idempotency(edge, TasksClient(edge), fabric.logger, most=4)
        once = Once(key=once_key(Binding.of("mcp", ANONYMOUS), "search", "k1"), arguments=digest_of(b"{}"))
        exchange = admitted(Envelope(1, "tools/call", {"name": "search"}, {}), VIEW)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: idempotency.answer(exchange, TARGET, once, run, goes_on=lambda: False))
            await until(lambda: len(asked) == 1)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await until(lambda: len(asked) == 2)
    assert [each.ended for each in asked[:2]] == [None, "not_run"]
    assert len({each.holder for each in asked}) == 1, "nobody answers here, so it may be told again"


@pytest.mark.rule("I3")
@pytest.mark.parametrize("line", [UNCERTAIN, None])
async def test_a_key_is_uncertain_as_soon_as_its_worker_says_so(fabric: Fabric, line: str | None) -> None:
    """A worker that leaves, or cannot have its result kept, answers with such a line. Repeats must not wait longer."""
    asked: list[Reserve] = []

    async def leave(reservation: Reservation, see: Callable[[Call], None]) -> str:
        assert reservation.fence == 1
        order = Order("library", "d", b"", 0.0, None)
        see(Call("c", order, 0.0, deque(), end=End.RESULT, line=line))
        return "tool_error"

    async with fabric.buses("edge", "tasks") as (edge, tasks):

        def note(message: Incoming) -> None:
            asked.append(Reserve.model_validate_json(message.body))
            tasks.respond(message, Reserved(outcome=KeyOutcome.NEW, fence=1).model_dump_json().encode())

        await tasks.subscribe(RESERVE.subject, note, asked_by=by_edges)
        await heard(edge, tasks)
        idempotency = Idempotency(edge, TasksClient(edge), fabric.logger, most=4)
        once = Once(key=once_key(Binding.of("mcp", ANONYMOUS), "search", "k1"), arguments=digest_of(b"{}"))
        exchange = admitted(Envelope(1, "tools/call", {"name": "search"}, {}), VIEW)
        await idempotency.answer(exchange, TARGET, once, leave, goes_on=lambda: False)
    assert [each.ended for each in asked] == [None, *(["uncertain"] if line else [])]


@pytest.mark.rule("I1", "N11")
async def test_of_many_repeats_at_an_edge_one_asks_for_all(fabric: Fabric) -> None:
    """Each question is a transaction: a hundred clients that repeat would make others wait for the store."""
    asked: list[Reserve] = []
    ends: list[str | None] = []
    is_done = False

    async with fabric.buses("edge", "tasks") as (edge, tasks):

        def answer(message: Incoming) -> None:
            asked.append(Reserve.model_validate_json(message.body))
            outcome = KeyOutcome.REPEAT if is_done else KeyOutcome.RUNNING
            tasks.respond(message, Reserved(outcome=outcome).model_dump_json().encode())

        await tasks.subscribe(RESERVE.subject, answer, asked_by=by_edges)
        await heard(edge, tasks)
        idempotency = Idempotency(edge, TasksClient(edge), fabric.logger, most=100)
        once = Once(key=once_key(Binding.of("mcp", ANONYMOUS), "search", "k1"), arguments=digest_of(b"{}"))

        async def repeat() -> None:
            exchange = admitted(Envelope(1, "tools/call", {"name": "search"}, {}), VIEW)
            ends.append(await idempotency.answer(exchange, TARGET, once, run, goes_on=lambda: False))

        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(repeat)
            await until(lambda: len(asked) > 1)
            is_done = True
            tasks.publish(task_hint_subject(once.key), b"")
        told = len(asked)
        await repeat()
    assert ends == ["key_result_too_large"] * 51
    assert told < 10, "a later repeat asks anew"
    assert len(asked) == told + 1
