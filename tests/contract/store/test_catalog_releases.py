"""Releases side by side on one store, on both databases: what one wrote, another may not know."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import insert, update
from structlog.testing import LogCapture

from mcpfleet.bus.errors import Failed
from mcpfleet.catalog.tables import endpoints, manifests, workers
from mcpfleet.contracts.catalog import Announce
from mcpfleet.contracts.manifest import Manifest, digest_of
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import now
from tests.contract.store.announcing import announce, listed, manifest, repository, snapshot, tool
from tests.kit.logs import captured

ENDPOINTS = {"books": {"path": "/books", "pools": ["library"]}, "scans": {"path": "/scans", "pools": ["archive"]}}


async def spoil(store: Store, body: str) -> None:
    """Let the newest snapshot be one that this release cannot read."""
    async with store.write() as connection:
        await connection.execute(update(endpoints).values(body=body))


async def keep(store: Store, pool: str, text: str) -> None:
    """Keep a manifest and a worker that announces it, as a release may that knows more than this one."""
    digest = digest_of(text.encode())
    async with store.write() as connection:
        await connection.execute(insert(manifests).values(digest=digest, body=text, first_announced=now()))
        await connection.execute(insert(workers).values(pool=pool, process="z", digest=digest, announced_at=now()))


async def test_a_definition_of_a_later_release_keeps_the_name_that_its_workers_hear(store: Store) -> None:
    books = repository(store)
    newer = json.dumps({"added_later": {"a": 1}, **json.loads(tool("search").text)}, indent=1)
    await announce(books, "library", "a", Manifest(name="library", version="1", definitions=(newer,)))
    await books.sweep(lost=None)
    (shown,) = (await snapshot(books)).listed
    assert (shown.digest, shown.definition) == (digest_of(newer.encode()), tool("search"))


@pytest.mark.parametrize(
    "body", ["", "{", "{}", '{"endpoint":"mcp","number":1,"name":"a","version":"1","listed":[{}]}']
)
async def test_a_former_snapshot_that_cannot_be_read_counts_as_none(store: Store, body: str) -> None:
    capture = LogCapture()
    books = repository(store, captured(capture))
    await announce(books, "library", "a", manifest("search"))
    await books.sweep(lost=None)
    await spoil(store, body)
    with pytest.raises(Failed) as raised:
        await repository(store).snapshot("mcp", None)
    assert raised.value.kind == "unavailable"
    await announce(books, "library", "a", manifest("search", "read"))
    await books.sweep(lost=None)
    newest = await snapshot(books)
    assert (newest.number, listed(newest)) == (2, {"read": "library", "search": "library"})
    (line,) = capture.entries
    assert (line["event"], line["endpoint"]) == ("unreadable snapshot replaced", "mcp")


async def test_a_snapshot_that_cannot_be_read_is_replaced_though_nothing_of_it_changed(store: Store) -> None:
    books = repository(store, endpoints={"mcp": {"path": "/mcp", "pools": ["library"]}})
    await announce(books, "library", "a", manifest("search"))
    await books.sweep(lost=None)
    await spoil(store, "{}")
    await announce(books, "archive", "b", manifest("scan"))
    await books.sweep(lost=None)
    assert ((await snapshot(books)).number, listed(await snapshot(books))) == (2, {"search": "library"})


async def test_withdrawing_counts_what_can_be_read(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", manifest("search"))
    await books.sweep(lost=None)
    await books.leave("library", "a")
    await spoil(store, "{}")
    withdrawn, _ = await books.withdraw("library")
    assert (withdrawn.definitions, withdrawn.workers) == (0, 0)
    assert listed(await snapshot(books)) == {}


@pytest.mark.parametrize("text", ["{}", '{"name":"a","version":"1","definitions":["{\\"kind\\":\\"prompt\\"}"]}'])
async def test_an_endpoint_of_which_a_release_can_read_a_part_only_stays_as_it_is(store: Store, text: str) -> None:
    """A replica that can read all of it merges it; to leave the pool out would end its list for everybody."""
    capture = LogCapture()
    books = repository(store, captured(capture), endpoints=ENDPOINTS)
    await announce(books, "library", "a", manifest("search"))
    await books.sweep(lost=None)
    await books.leave("library", "a")
    await keep(store, "library", text)
    await announce(books, "archive", "b", manifest("scan"))
    for _ in range(3):
        await books.sweep(lost=None)
    assert listed(await snapshot(books, "scans")) == {"scan": "archive"}
    assert ((await snapshot(books, "books")).number, listed(await snapshot(books, "books"))) == (
        1,
        {"search": "library"},
    )
    assert [line["event"] for line in capture.entries] == ["manifest not readable", "endpoint not as set"]
    await books.leave("library", "z")
    await announce(books, "library", "a", manifest("read"))
    await books.sweep(lost=None)
    assert listed(await snapshot(books, "books")) == {"read": "library"}


@pytest.mark.parametrize("timeout", ["Infinity", "NaN", "1e999"])
async def test_a_definition_that_no_edge_could_read_is_never_kept(store: Store, timeout: str) -> None:
    """Once it was: every later snapshot failed, for all pools and for good."""
    books = repository(store)
    endless = tool("search").text[:-1] + f',"timeout":{timeout}' + "}"
    what = Manifest(name="library", version="1", definitions=(tool("read").text, endless))
    with pytest.raises(Failed, match=r"definitions\.1: timeout") as raised:
        await books.count_in("library", Announce(process="a", digest=what.digest, manifest=what.text))
    assert raised.value.kind == "contract"
    assert (await books.count_in("library", Announce(process="a", digest=what.digest))).wanted
    await announce(books, "archive", "b", manifest("scan"))
    await books.sweep(lost=None)
    assert listed(await snapshot(books)) == {"scan": "archive"}
