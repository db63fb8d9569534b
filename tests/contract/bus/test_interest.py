"""An edge's interest in resources: just the keys that its streams watch, or all of them where these are many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.hints import OPERATOR_TOKEN, resource_hint_subject, resource_hints, resource_key
from mcpfleet.edge.streams.interest import Interest
from mcpfleet.telemetry.trace import TraceContext
from tests.contract.bus.fabric import Fabric
from tests.kit.waiting import until

URIS = [f"library://books/{number}" for number in range(8)]
Heard = list[tuple[str, str, str]]


@asynccontextmanager
async def interested(fabric: Fabric, most: int = 4) -> AsyncIterator[tuple[Interest, Bus, Bus, Heard]]:
    """An edge's interest, its bus, a worker's bus, and what was heard."""
    heard: Heard = []
    async with fabric.buses("edge", "pool-library") as (edge, pool), anyio.create_task_group() as tasks:
        interest = Interest(edge, lambda *hint: heard.append(hint[:3]), most=most)
        await tasks.start(interest.run)
        yield interest, edge, pool, heard
        tasks.cancel_scope.cancel()


def publish(bus: Bus, uri: str, token: str = "library") -> None:
    bus.publish(resource_hint_subject("mcp", token, resource_key(uri)), uri.encode())


def subjects(bus: Bus) -> list[str]:
    """The edge's subscriptions for resources."""
    return sorted(each.subject for each in bus.subscriptions if each.subject.startswith("hint.resource."))


async def test_what_is_watched_is_heard_and_nothing_else(fabric: Fabric) -> None:
    async with interested(fabric) as (interest, edge, pool, heard):
        await interest.watch("mcp", URIS[:2])
        await edge.flush(timeout=5)
        for uri in (URIS[2], URIS[0], URIS[1]):
            publish(pool, uri)
        await until(lambda: heard == [("mcp", "library", URIS[0]), ("mcp", "library", URIS[1])], within=5)
        assert len(subjects(edge)) == 2


async def test_a_key_is_heard_for_as_long_as_one_watches_it(fabric: Fabric) -> None:
    async with interested(fabric) as (interest, edge, pool, heard):
        await interest.watch("mcp", URIS[:1])
        await interest.watch("mcp", URIS[:1])
        interest.unwatch("mcp", URIS[:1])
        await edge.flush(timeout=5)
        publish(pool, URIS[0])
        await until(lambda: len(heard) == 1, within=5)
        interest.unwatch("mcp", URIS[:1])
        await until(lambda: subjects(edge) == [], within=5)


async def test_above_a_bound_one_subscription_hears_all_keys_and_below_it_one_each(fabric: Fabric) -> None:
    async with interested(fabric) as (interest, edge, pool, heard):
        await interest.watch("mcp", URIS[:4])
        assert len(subjects(edge)) == 4
        await interest.watch("mcp", URIS[4:])
        await until(lambda: subjects(edge) == ["hint.resource.mcp.*.*"], within=5)
        await edge.flush(timeout=5)
        publish(pool, URIS[5])
        await until(lambda: heard == [("mcp", "library", URIS[5])], within=5)
        interest.unwatch("mcp", URIS[3:])
        await until(lambda: len(subjects(edge)) == 3, within=5)
        heard.clear()
        publish(pool, URIS[0])
        publish(pool, URIS[5])
        publish(pool, URIS[1])
        await until(lambda: len(heard) == 2, within=5)
        assert [uri for _, _, uri in heard] == [URIS[0], URIS[1]]


async def test_no_hint_is_lost_while_the_way_of_hearing_changes(fabric: Fabric) -> None:
    async with interested(fabric, most=2) as (interest, edge, pool, heard):
        await interest.watch("mcp", URIS[:1])
        await edge.flush(timeout=5)
        sent = 0
        for _ in range(10):
            await interest.watch("mcp", URIS[1:])
            publish(pool, URIS[0])
            interest.unwatch("mcp", URIS[1:])
            publish(pool, URIS[0])
            sent += 2
            await anyio.sleep(0.01)
        await until(lambda: len(heard) >= sent, within=5)


async def test_a_hint_names_the_work_that_caused_it_where_that_is_recorded(fabric: Fabric) -> None:
    """A hint of an older worker, and one of work that nobody records, have no line: they cost what they did."""
    recorded = TraceContext.fresh(sampled=True)
    heard: list[TraceContext | None] = []
    async with fabric.buses("edge", "pool-library") as (edge, pool):
        interest = Interest(edge, lambda _endpoint, _pool, _uri, cause: heard.append(cause), most=4)
        lines: list[str | None] = []
        await edge.subscribe(resource_hints("mcp"), lambda message: lines.append(message.header))
        await interest.watch("mcp", URIS[:1])
        await edge.flush(timeout=5)
        subject = resource_hint_subject("mcp", "library", resource_key(URIS[0]))
        for cause in (recorded, TraceContext.fresh(sampled=False), None):
            pool.hint(subject, URIS[0].encode(), cause)
        await until(lambda: len(heard) == len(lines) == 3)
    assert heard == [recorded, None, None]
    assert [line is None for line in lines] == [False, True, True]


async def test_a_pool_speaks_under_its_own_name_alone_and_the_operator_for_all(fabric: Fabric) -> None:
    async with interested(fabric) as (interest, edge, pool, heard), fabric.buses("operator") as (operator,):
        await interest.watch("mcp", URIS[:1])
        await edge.flush(timeout=5)
        for token in ("other", OPERATOR_TOKEN):
            publish(pool, URIS[0], token)
        await until(lambda: len(fabric.lines("refused by NATS")) == 2, within=5)
        publish(operator, URIS[0], OPERATOR_TOKEN)
        await until(lambda: heard == [("mcp", OPERATOR_TOKEN, URIS[0])], within=5)
