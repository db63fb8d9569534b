"""The subjects that each user may send and hear, as the server itself enforces it (invariant 13)."""

from __future__ import annotations

import time

import pytest

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import Refused
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts import call, catalog
from mcpfleet.contracts.authorization import ADMIT
from mcpfleet.contracts.call import FrameKind
from tests.contract.bus.fabric import Fabric, by_edges, heard
from tests.kit.waiting import until

EDGE = "00000000000000e1"
SNAPSHOT = catalog.SNAPSHOT.subject_for()
WITHDRAW = catalog.WITHDRAW.subject_for()
ANNOUNCE_OTHER = catalog.ANNOUNCE.subject_for(pool="other")
ALIVE_OTHER = call.ALIVE.subject_for(edge=EDGE, pool="other")

MAY_NOT_SEND = [
    pytest.param("pool-library", call.call_subject("other", "d1"), id="a pool calls another pool"),
    pytest.param("pool-library", call.call_subject("library", "d1"), id="a pool calls itself"),
    pytest.param("pool-library", ANNOUNCE_OTHER, id="a pool announces for another"),
    pytest.param("pool-library", call.frame_subject(EDGE, "other", "7", FrameKind.RESULT), id="a pool forges an end"),
    pytest.param("pool-library", call.frame_subject(EDGE, "other", "7", FrameKind.ACCEPTED), id="a pool accepts"),
    pytest.param("pool-library", ALIVE_OTHER, id="a pool is alive for another"),
    pytest.param("pool-library", call.reply_subject(EDGE, "7"), id="a pool answers what it was not asked"),
    pytest.param("pool-library", f"inbox.edge.{EDGE}.1", id="a pool writes into an edge's inbox"),
    pytest.param("pool-library", f"inbox.edge.{EDGE}.self", id="a pool proves an edge's link"),
    pytest.param("pool-library", "inbox.pool-other.w1.1", id="a pool writes into another pool's inbox"),
    pytest.param("pool-library", "inbox.pool-library.w1.1", id="a pool writes into its own inbox"),
    pytest.param("pool-library", catalog.hint_subject("mcp"), id="a pool sends the catalog's hint"),
    pytest.param("pool-library", "hint.authority", id="a pool sends authorization's hint"),
    pytest.param("pool-library", call.pool_cancel_subject("other"), id="a pool cancels another's calls"),
    pytest.param("pool-library", call.process_cancel_subject("other", "w1"), id="a pool cancels another's call"),
    pytest.param("pool-library", ADMIT.subject_for(), id="a pool asks who a caller is"),
    pytest.param("pool-library", SNAPSHOT, id="a pool asks what there is"),
    pytest.param("pool-library", WITHDRAW, id="a pool withdraws"),
    pytest.param("edge", ANNOUNCE_OTHER, id="an edge announces"),
    pytest.param("edge", WITHDRAW, id="an edge withdraws"),
    pytest.param("edge", call.frame_subject(EDGE, "library", "7", FrameKind.RESULT), id="an edge sends a frame"),
    pytest.param("edge", catalog.hint_subject("mcp"), id="an edge sends a hint"),
    pytest.param("catalog", call.call_subject("library", "d1"), id="the catalog calls"),
    pytest.param("catalog", "hint.authority", id="the catalog sends authorization's hint"),
    pytest.param("authorization", catalog.hint_subject("mcp"), id="authorization sends the catalog's hint"),
    pytest.param("operator", call.call_subject("library", "d1"), id="an operator calls"),
    pytest.param("operator", ANNOUNCE_OTHER, id="an operator announces"),
]

MAY_NOT_HEAR = [
    pytest.param("pool-library", ">", "", id="a pool hears everything"),
    pytest.param("pool-library", "inbox.edge.>", "", id="a pool reads the edges' inboxes"),
    pytest.param("pool-library", f"inbox.edge.{EDGE}.*", "", id="a pool reads an edge's inbox"),
    pytest.param("pool-library", "inbox.>", "", id="a pool reads all inboxes"),
    pytest.param("pool-library", "pool.other.>", "", id="a pool hears another's calls"),
    pytest.param("pool-library", "pool.other.*.call", "workers", id="a pool joins another's workers"),
    pytest.param("pool-library", "pool.*.*.call", "workers", id="a pool joins everybody's workers"),
    pytest.param("pool-library", "process.pool.other.>", "", id="a pool hears another's cancels"),
    pytest.param("pool-library", f"edge.{EDGE}.>", "", id="a pool hears another's frames"),
    pytest.param("pool-library", SNAPSHOT, "catalog", id="a pool answers for the catalog"),
    pytest.param("pool-library", ADMIT.subject_for(), "authorization", id="a pool answers for authorization"),
    pytest.param("pool-library", "catalog.announce.*", "catalog", id="a pool hears announcements"),
    pytest.param("edge", "pool.library.*.call", "workers", id="an edge joins the workers"),
    pytest.param("edge", "inbox.pool-library.>", "", id="an edge reads a pool's inbox"),
    pytest.param("catalog", ADMIT.subject_for(), "", id="the catalog hears credentials"),
    pytest.param("authorization", SNAPSHOT, "", id="authorization answers for the catalog"),
    pytest.param("operator", ">", "", id="an operator hears everything"),
]


async def told(fabric: Fabric, subject: str) -> str:
    """Wait until the refusal of a subject is logged, and read what the operator reads."""
    await until(lambda: [line for line in fabric.lines("refused by NATS") if line["subject"] == subject])
    return str(fabric.lines("refused by NATS")[0]["error"])


async def still_works(bus: Bus) -> None:
    """A refusal costs the connection nothing."""
    assert bus.is_up
    await heard(bus)


@pytest.mark.parametrize(("user", "subject"), MAY_NOT_SEND)
async def test_what_is_not_permitted_is_refused_with_its_subject(fabric: Fabric, user: str, subject: str) -> None:
    """A message's sender has moved on, so the operator reads it; a request has not run, and its asker knows at once."""
    async with fabric.buses(user) as (bus,):
        bus.publish(subject, b"forged")
        assert "publish to" in await told(fabric, subject)
        assert fabric.instruments.refusals.read().points[0].value == 1
        began = time.monotonic()
        with pytest.raises(Refused) as raised:
            await bus.request(subject, b"forged", timeout=60)
        assert raised.value.subject == subject
        assert time.monotonic() - began < 30
        await still_works(bus)


@pytest.mark.parametrize(("user", "subject", "group"), MAY_NOT_HEAR)
async def test_a_subscription_that_is_not_permitted_is_logged_with_its_subject(
    fabric: Fabric, user: str, subject: str, group: str
) -> None:
    async with fabric.buses(user) as (bus,):
        await bus.subscribe(subject, lambda _: None, group)
        assert "subscribe to" in await told(fabric, subject)
        await still_works(bus)


@pytest.mark.rule("invariant 13")
async def test_what_a_pool_forges_reaches_no_edge(fabric: Fabric) -> None:
    arrived: list[str] = []
    async with fabric.buses("edge", "pool-library") as (edge, pool):
        await edge.subscribe(call.edge_subjects(edge.process), lambda message: arrived.append(message.subject))
        await heard(edge)
        forged = call.frame_subject(edge.process, "other", "7", FrameKind.RESULT)
        own = call.frame_subject(edge.process, "library", "8", FrameKind.RESULT)
        pool.publish(forged, b"{}")
        pool.publish(own, b"{}")
        await until(lambda: arrived)
        await told(fabric, forged)
    assert arrived == [own]


async def test_a_subscription_that_is_not_permitted_hears_nothing(fabric: Fabric) -> None:
    overheard: list[str] = []
    async with fabric.buses("edge", "pool-library", "pool-other") as (edge, pool, spy):
        await spy.subscribe("pool.library.*.call", lambda message: overheard.append(message.subject), "workers")
        await pool.subscribe(
            "pool.library.*.call", lambda question: pool.respond(question, b"mine"), "workers", asked_by=by_edges
        )
        await heard(pool, spy)
        for _ in range(20):
            assert (await edge.request(call.call_subject("library", "d1"), b"", timeout=5)).body == b"mine"
    assert overheard == []


async def test_whoever_was_asked_may_answer_once(fabric: Fabric) -> None:
    """The answer goes to a subject that nobody may write by name."""

    def answer_twice(question: Incoming) -> None:
        catalog_bus.respond(question, b"first")
        catalog_bus.respond(question, b"second")

    async with fabric.buses("edge", "catalog") as (edge, catalog_bus):
        await catalog_bus.subscribe(SNAPSHOT, answer_twice, "catalog", asked_by=by_edges)
        await heard(catalog_bus)
        assert (await edge.request(SNAPSHOT, b"", timeout=5)).body == b"first"
        await until(lambda: fabric.lines("refused by NATS"))
        assert fabric.lines("refused by NATS")[0]["subject"].startswith(f"inbox.edge.{edge.process}.")


async def test_a_refusal_tells_an_operator_what_to_compare_and_nothing_secret(fabric: Fabric) -> None:
    async with fabric.buses("pool-library") as (pool,):
        pool.publish("hint.authority", b"")
        text = await told(fabric, "hint.authority")
    assert "password" not in text
    assert "mcpfleet nats" in text
